// A web server on the loopback interface for tests: one file, with ranges, versions and faults.
#pragma once
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
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
  int status = 0;        // instead of a file
  size_t cut_after = 0;  // bytes of the answer, then the connection ends; 0: never
  int cuts = 1;          // how many answers are cut
  bool silent = false;   // takes requests and never answers
};

class HttpServer {
 public:
  explicit HttpServer(Served served) : served_(std::move(served)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* general = reinterpret_cast<sockaddr*>(&address);
    check(fd_ >= 0 && ::bind(fd_, general, size) == 0 && ::listen(fd_, 8) == 0 &&
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
  void change(const Served& served) {
    std::lock_guard lock(mutex_);
    served_ = served;
  }

 private:
  void serve() {
    std::vector<int> silent;
    while (!stop_) {
      pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      int connection = ::accept(fd_, nullptr, nullptr);
      std::string request = read_request(connection);
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
      if (served_.silent) {
        silent.push_back(connection);
        continue;
      }
      answer(connection, request);
      ::close(connection);
    }
    for (int connection : silent) ::close(connection);
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

  void answer(int connection, const std::string& request) {
    size_t begin = request.find(' ') + 1;
    auto file = served_.files.find(request.substr(begin, request.find(' ', begin) - begin));
    int status = served_.status ? served_.status : file == served_.files.end() ? 404 : 200;
    if (status != 200)
      return send_all(connection,
                      concat("HTTP/1.1 ", status, " Error\r\nContent-Length: 5\r\n\r\nerror"));
    std::string_view content = file->second;
    std::string range = header(request, "Range"), condition = header(request, "If-Range");
    std::string head = "HTTP/1.1 200 OK\r\n";
    if (served_.ranges && !range.empty() && (condition.empty() || condition == served_.etag)) {
      size_t from = std::stoul(range.substr(6));
      if (from >= content.size())
        return send_all(connection, "HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n");
      head = concat("HTTP/1.1 206 Partial\r\nContent-Range: bytes ", from, "-", content.size() - 1,
                    "/", content.size(), "\r\n");
      content.remove_prefix(from);
    }
    if (!served_.etag.empty()) head += "ETag: " + served_.etag + "\r\n";
    send_all(connection, concat(head, "Content-Length: ", content.size(), "\r\n\r\n"));
    bool cut = served_.cut_after > 0 && served_.cut_after < content.size() && served_.cuts-- > 0;
    send_all(connection, cut ? content.substr(0, served_.cut_after) : content);
  }

  int fd_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;  // guards what follows
  Served served_;
  std::vector<std::string> requests_;
  std::jthread thread_;
};

}  // namespace neox::testing
