// Somebody else's program at a port where a job looks for its store.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace neox::testing {

class Stranger {
 public:
  enum Kind { kSilent, kHttp };
  Stranger(int port, Kind kind) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(fd_, 64), 0);
    if (kind == kHttp) thread_ = std::thread([this] { answer(); });
  }
  ~Stranger() {
    ::shutdown(fd_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(fd_);
  }

 private:
  void answer() {
    const std::string text = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    for (int peer; (peer = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(peer)) {
      char request[1024];
      if (::read(peer, request, sizeof request) <= 0) continue;
      EXPECT_GT(::write(peer, text.data(), text.size()), 0);
    }
  }
  int fd_;
  std::thread thread_;
};

}  // namespace neox::testing
