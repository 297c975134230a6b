// A web server for programs: HTTP/1.1 without TLS, whose requests are answered whole, or with
// events as they come (text/event-stream, as browsers read it).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace neox {

struct HttpRequest {
  std::string method, path, body;  // path: without what follows a '?'
  std::string authorization;       // the header, or ""
  std::string from;                // address of the client
};

// Where the answer to a request goes. Any thread may call it; what comes behind the end of the
// answer, or when the client has gone, is dropped, as is a whole one where an answer has begun.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // fields: "Name: value\r\n" of each.
  virtual void whole(int status, const std::string& type, std::string body,
                     const std::string& fields = "") = 0;
  // "data: ..."; the first one begins the answer.
  virtual void event(const std::string& data) = 0;
  virtual void end_events() = 0;
  // The client sees that the answer is not whole. Never throws.
  virtual void cut() = 0;
  // Something of the answer has been given.
  virtual bool begun() const = 0;
  // Nobody reads the answer any more.
  virtual bool gone() const = 0;
};

struct HttpOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT, [HOST]:PORT or PORT; port 0: any
  size_t most_body = 16 << 20;         // bytes of a request
  size_t most_kept = 4 << 20;          // bytes of events that a client may be behind
  int most_connections = 1000;
  // Without a request, in the head of one, or in which nothing of its body comes or of its answer
  // is taken. The whole body has as many times that as most_body has MiB, and once more.
  int idle_seconds = 60;
};

// Answers in a thread of its own from construction to destruction.
class HttpServer {
 public:
  // Is called in that thread, so it must not work long. Where it throws, a reply that has not begun
  // is 500.
  using Handler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;
  // Throws Error (64) where it cannot listen there.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();
  // Sends what answers have ended with, and no more. Replies must be gone before the server is.
  void stop();
  std::string url() const;  // "http://127.0.0.1:5000"; of all addresses "http://node7:5000"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace neox
