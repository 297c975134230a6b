// Connections to rank 0: of strangers, and of ranks that say nothing for hours.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <chrono>
#include <tuple>

#include "rendezvous/store.h"
#include "rendezvous_ranks.h"

namespace neox::testing {
namespace {

// It asks for values and does not wait for them, in the store's own words: a byte for the request,
// texts behind their lengths (torch/csrc/distributed/c10d/TCPStoreBackend.hpp of PyTorch 2.11).
TEST(Connections, AStrangerWhoHangsUpDoesNotEndRankZero) {
  Listener listener = listen_from(next_ports(), 8);
  const std::pair<std::string, std::string> value{"a", std::string(100000, 'x')};
  StoreServer server(listener, {&value, 1});
  std::string asked("\0\xCE\xF7\x85\x3C", 5);
  for (int i = 0; i < 100; ++i) asked += std::string("\3\2\0\0\0\0\0\0\0/a", 11);
  for (int i = 0; i < 20; ++i) {
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{.sin_family = AF_INET,
                     .sin_port = htons(static_cast<uint16_t>(listener.port))};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::write(fd, asked.data(), asked.size()), std::ssize(asked));
    ::close(fd);
  }
  StoreClient client({"127.0.0.1", listener.port}, "a", StoreClient::Knock::kNot);
  ASSERT_EQ(client.wait_connected(std::chrono::seconds(30)), StoreClient::State::kConnected);
  EXPECT_EQ(client.get("a"), value.second);
}

// Some carry nothing for hours, which networks that follow connections would forget.
TEST(Connections, ConnectionsAreKeptAlive) {
  Listener listener = listen_from(next_ports(), 8);
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(listener.port))};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  int accepted = ::accept(listener.fd, nullptr, nullptr);
  for (auto [level, option, most] :
       {std::tuple{SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 59}}) {
    int value = 0;
    socklen_t bytes = sizeof value;
    ASSERT_EQ(::getsockopt(accepted, level, option, &value, &bytes), 0);
    EXPECT_GT(value, 0);
    EXPECT_LE(value, most);
  }
  for (int open : {fd, accepted, listener.fd}) ::close(open);
}

}  // namespace
}  // namespace neox::testing
