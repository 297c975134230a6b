// A client of a web server on the loopback interface for tests: a request, its whole answer.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace neox::testing {

struct HttpAnswer {
  int status = 0;
  std::string head, body;
};

class HttpClient {
 public:
  explicit HttpClient(int port) : port_(port) {}

  // headers: "Name: value\r\n" of each.
  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& headers = "") const {
    int fd = send(concat(method, " ", path, " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n",
                         headers, "Content-Length: ", body.size(), "\r\n\r\n", body));
    std::string all;
    char part[4096];
    for (ssize_t n; (n = ::recv(fd, part, sizeof part, 0)) > 0;)
      all.append(part, static_cast<size_t>(n));
    ::close(fd);
    return answer_in(all);
  }
  HttpAnswer post(const std::string& path, const std::string& body) const {
    return ask("POST", path, body);
  }

  // The socket, on which the answer comes.
  int send(const std::string& bytes) const {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(port_)),
                        .sin_addr = {},
                        .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
          "no connection to port ", port_);
    for (size_t sent = 0; sent < bytes.size();) {
      ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;  // the server may answer before it has read all
      sent += static_cast<size_t>(n);
    }
    return fd;
  }

 private:
  static HttpAnswer answer_in(const std::string& all) {
    size_t end = all.find("\r\n\r\n");
    if (!all.starts_with("HTTP/1.") || end == std::string::npos) return {0, all, ""};
    HttpAnswer answer{std::stoi(all.substr(9, 3)), all.substr(0, end), all.substr(end + 4)};
    if (answer.head.find("chunked") != std::string::npos) answer.body = joined(answer.body);
    return answer;
  }
  static std::string joined(const std::string& chunks) {
    std::string all;
    for (size_t at = 0; at < chunks.size();) {
      size_t size = std::stoul(chunks.substr(at), nullptr, 16), begin = chunks.find("\r\n", at) + 2;
      all += chunks.substr(begin, size);
      at = begin + size + 2;
      if (size == 0) return all;
    }
    return all + "<cut off>";
  }

  int port_;
};

}  // namespace neox::testing
