// A web server on the loopback interface for tests: files with ranges, versions and faults, each
// request in a thread of its own.
#pragma once
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace neox::testing {

struct Served {
  std::map<std::string, std::string> files;  // by their address, "/a.zip"
  std::string etag = "\"1\"";
  bool ranges = true;
  int status = 0;                                     // instead of a file
  std::map<std::string, std::string> redirects = {};  // from an address to another
  size_t cut_after = 0;    // bytes of the answer, then the connection ends; 0: never
  int cuts = 1;            // how many answers are cut
  size_t stall_after = 0;  // bytes of the answer, then silence; 0: never
  bool silent = false;     // takes requests and never answers
  int pause_ms = 0;        // before each answer
  int hang_ups = 0;        // so many connections are closed without an answer
  bool knows_if_range = true;
  size_t part_bytes = 0;  // the most that a range gives; 0: all that was asked for
};

class HttpServer {
 public:
  explicit HttpServer(Served served) : served_(std::move(served)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* general = reinterpret_cast<sockaddr*>(&address);
    check(fd_ >= 0 && ::bind(fd_, general, size) == 0 && ::listen(fd_, 64) == 0 &&
              ::getsockname(fd_, general, &size) == 0,
          "no socket for the server");
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  ~HttpServer() {
    stop_ = true;
    thread_.join();
    ::close(fd_);
  }

  std::string url(const std::string& path = "") const {
    return concat("http://127.0.0.1:", port_, path);
  }
  std::vector<std::string> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  // The most requests that waited for their answers at the same time.
  int most_at_once() const {
    std::lock_guard lock(mutex_);
    return most_at_once_;
  }
  void change(const Served& served) {
    std::lock_guard lock(mutex_);
    served_ = served;
  }

 private:
  void serve() {
    std::vector<std::jthread> connections;
    while (!stop_) {
      pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      connections.emplace_back([this, connection = ::accept(fd_, nullptr, nullptr)] {
        talk(connection);
        ::close(connection);
      });
    }
  }

  void talk(int connection) {
    std::string request = read_request(connection);
    Served served;
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
      served = served_;
      if (served.cut_after > 0 && served_.cuts-- <= 0) served.cut_after = 0;
      served.silent = served.silent || served_.hang_ups > 0;
      most_at_once_ = std::max(most_at_once_, ++at_once_);
    }
    if (served.pause_ms > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(served.pause_ms));
    {
      // Before the other side, which sees the end of an answer first, asks again.
      std::lock_guard lock(mutex_);
      --at_once_;
    }
    if (!served.silent) answer(connection, request, served);
    if (served.hang_ups > 0) {
      std::lock_guard lock(mutex_);
      --served_.hang_ups;
      return;
    }
    if (served.silent || served.stall_after > 0) wait_for_end(connection);
  }

  // Until the other side closes, or the server is to end.
  void wait_for_end(int connection) {
    for (char byte; !stop_;) {
      pollfd ready{.fd = connection, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) == 1 && ::recv(connection, &byte, 1, 0) <= 0) return;
    }
  }

  static std::string read_request(int connection) {
    std::string request;
    char buffer[4096];
    for (ssize_t n; request.find("\r\n\r\n") == std::string::npos &&
                    (n = ::recv(connection, buffer, sizeof buffer, 0)) > 0;)
      request.append(buffer, static_cast<size_t>(n));
    return request;
  }

  static std::string header(const std::string& request, const std::string& name) {
    size_t at = request.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    at += name.size() + 4;
    return request.substr(at, request.find("\r\n", at) - at);
  }

  static void send_all(int connection, std::string_view text) {
    for (ssize_t n;
         !text.empty() && (n = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL)) > 0;)
      text.remove_prefix(static_cast<size_t>(n));
  }

  void answer(int connection, const std::string& request, const Served& served) {
    size_t begin = request.find(' ') + 1;
    std::string address = request.substr(begin, request.find(' ', begin) - begin);
    if (auto other = served.redirects.find(address); other != served.redirects.end())
      return send_all(
          connection,
          concat("HTTP/1.1 302 Found\r\nLocation: ", other->second,
                 "\r\nETag: \"other\"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
    auto file = served.files.find(address);
    int status = served.status ? served.status : file == served.files.end() ? 404 : 200;
    if (status != 200)
      return send_all(connection,
                      concat("HTTP/1.1 ", status,
                             " Error\r\nConnection: close\r\nContent-Length: 5\r\n\r\nerror"));
    send_file(connection, file->second, request, served);
  }

  void send_file(int connection, std::string_view content, const std::string& request,
                 const Served& served) {
    std::string range = header(request, "Range"), condition = header(request, "If-Range");
    std::string head = "HTTP/1.1 200 OK\r\n";
    bool same = condition.empty() || condition == served.etag || !served.knows_if_range;
    if (served.ranges && !range.empty() && same) {
      size_t dash = range.find('-'), from = std::stoul(range.substr(6)), whole = content.size();
      if (from >= whole)
        return send_all(connection,
                        "HTTP/1.1 416 Range\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
      content.remove_prefix(from);
      if (dash + 1 < range.size())
        content = content.substr(0, std::stoul(range.substr(dash + 1)) - from + 1);
      if (served.part_bytes > 0) content = content.substr(0, served.part_bytes);
      head = concat("HTTP/1.1 206 Partial\r\nContent-Range: bytes ", from, "-",
                    from + content.size() - 1, "/", whole, "\r\n");
    }
    if (!served.etag.empty()) head += "ETag: " + served.etag + "\r\n";
    send_all(connection,
             concat(head, "Connection: close\r\nContent-Length: ", content.size(), "\r\n\r\n"));
    size_t end = std::string::npos;
    if (served.cut_after > 0) end = served.cut_after;
    if (served.stall_after > 0) end = served.stall_after;
    send_all(connection, content.substr(0, end));
  }

  int fd_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;  // guards what follows
  Served served_;
  std::vector<std::string> requests_;
  int at_once_ = 0, most_at_once_ = 0;
  std::jthread thread_;
};

}  // namespace neox::testing
