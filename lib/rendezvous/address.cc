#include "rendezvous/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

class Socket {
 public:
  Socket(int family, int flags) : fd_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void set(int level, int option, int value) {
    ::setsockopt(fd_, level, option, &value, sizeof value);
  }

 private:
  int fd_;
};

// 0, or the error.
int bind_and_listen(Socket& socket, int port) {
  constexpr int kBacklog = 4096;
  sockaddr_in6 six{.sin6_family = AF_INET6, .sin6_port = htons(static_cast<uint16_t>(port))};
  sockaddr_in four{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  int family = 0;
  socklen_t bytes = sizeof family;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_DOMAIN, &family, &bytes);
  bool is_six = family == AF_INET6;
  auto* address = is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  // A port that connections of an ended job still linger on is free.
  socket.set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (is_six) socket.set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Connections that it accepts have the same. Between two checkpoints some carry nothing, and a
  // network that follows connections (security groups of EC2: 350 s, or from 60 s on; firewalls)
  // forgets those.
  socket.set(SOL_SOCKET, SO_KEEPALIVE, 1);
  socket.set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  socket.set(IPPROTO_TCP, TCP_KEEPINTVL, 30);
  if (::bind(socket.fd(), address, is_six ? sizeof six : sizeof four) != 0) return errno;
  return ::listen(socket.fd(), kBacklog) == 0 ? 0 : errno;
}

int port_of(int fd) {
  sockaddr_in6 name{};  // the port of an IPv4 address is at the same place
  socklen_t bytes = sizeof name;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes);
  return ntohs(name.sin6_port);
}

// 0, or the error.
int connect_within(const addrinfo& to, std::chrono::milliseconds limit) {
  Socket socket(to.ai_family, SOCK_NONBLOCK);
  if (socket.fd() < 0) return errno;
  if (::connect(socket.fd(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{socket.fd(), POLLOUT, 0};
  if (::poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

// "node1.cluster.local" and "node1" are one machine.
std::string short_name(std::string_view name) { return lower_case(name.substr(0, name.find('.'))); }

}  // namespace

std::string to_string(const Address& address) { return concat(address.host, ":", address.port); }

Address parse_address(const std::string& text) {
  size_t colon = text.rfind(':');
  int port = colon == text.npos ? 0 : number_of<int>(text.substr(colon + 1)).value_or(0);
  check_usage(port > 0 && port < 65536 && colon > 0, "'", text,
              "' is no address of a rendezvous store; HOST:PORT is needed");
  return {text.substr(0, colon), port};
}

std::string reachable_name(const ProcessInfo& process) {
  if (process.local_size == process.size) return "127.0.0.1";
  bool named = short_name(process.rendezvous_host) == short_name(process.host);
  return named ? process.rendezvous_host : process.host;
}

Listener listen_from(int first_port, int count) {
  int error = 0;
  for (int port = first_port; port < first_port + count && port < 65536; ++port) {
    for (int family : {AF_INET6, AF_INET}) {
      Socket socket(family, 0);
      error = socket.fd() < 0 ? errno : bind_and_listen(socket, port);
      if (error == 0) {
        int fd = socket.release();
        return {fd, port_of(fd)};
      }
      if (error == EADDRINUSE) break;  // else this family may be absent
    }
  }
  fail(Exit::kPeerLost, "rank 0 cannot listen at ports ", first_port, " to ",
       first_port + count - 1, ": ", std::strerror(error),
       "; end what holds them, or choose others with NEOX_MASTER=HOST:PORT");
}

void knock(const Address& address, std::chrono::milliseconds limit) {
  addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  int status = ::getaddrinfo(address.host.c_str(), concat(address.port).c_str(), &hints, &found);
  check(status == 0, address.host, ": ", ::gai_strerror(status));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  int error = ECONNREFUSED;
  for (const addrinfo* to = found; to && error != 0; to = to->ai_next)
    error = connect_within(*to, limit);
  check(error == 0, to_string(address), ": ", std::strerror(error));
}

}  // namespace neox
