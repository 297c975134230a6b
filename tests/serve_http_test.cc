// The web server of neox-serve by itself: answers in turn, to whom they go, and slow clients.
#include <poll.h>

#include "serve/http.h"
#include "serve_program.h"

namespace neox::testing {
namespace {

TEST(HttpServer, AnswersWhereItsHandlerThrows) {
  neox::HttpServer server({}, [](const HttpRequest& request, const std::shared_ptr<HttpReply>&) {
    fail(Exit::kInternal, "no answer to ", request.path);
  });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(client_of(server.url()).ask("GET", "/health").status, 500);
}

// Pieces are written one by one, and it may stop between any two of them.
TEST(HttpServer, SendsAllOfAStreamBeforeItStops) {
  const size_t pieces = 5000;
  for (int round = 0; round < 30; ++round) {
    std::promise<std::shared_ptr<HttpReply>> asked;
    auto take = [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
      asked.set_value(reply);
    };
    auto server = std::make_unique<neox::HttpServer>(HttpOptions{}, take);
    auto answer = std::async(std::launch::async, [client = client_of(server->url())] {
      return client.ask("GET", "/stream");
    });
    {
      std::shared_ptr<HttpReply> reply = asked.get_future().get();
      for (size_t i = 0; i < pieces; ++i) reply->event("a");
      reply->end_events();
    }
    server.reset();
    EXPECT_EQ(events_in(answer.get().body).size(), pieces);
  }
}

// A server of one handler, which greets but for who asks for /kept: the test has that reply.
class KeptReply {
 public:
  explicit KeptReply(const std::string& fields = "")
      : fd(client_of(server_.url()).send("GET /kept HTTP/1.1\r\n" + fields + "\r\n")),
        reply(asked_.get_future().get()) {}

 private:
  std::promise<std::shared_ptr<HttpReply>> asked_;
  neox::HttpServer server_{
      {}, [this](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        if (request.path == "/kept") return asked_.set_value(reply);
        reply->whole(200, "text/plain", "hello");
      }};

 public:
  int fd;  // of who asked
  std::shared_ptr<HttpReply> reply;
};

void send_on(int fd, const std::string& bytes) {
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  ::usleep(300'000);  // the server sees them
}

std::string received(int fd) {
  std::string all;
  char part[4096];
  for (ssize_t n; (n = ::recv(fd, part, sizeof part, 0)) > 0;)
    all.append(part, static_cast<size_t>(n));
  ::close(fd);
  return all;
}

TEST(HttpServer, AnswersInTurnWhoAsksTheNextBeforeTheAnswer) {
  KeptReply kept;
  send_on(kept.fd, "GET /next HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_FALSE(kept.reply->gone());
  kept.reply->whole(200, "text/plain", "kept");
  std::string all = received(kept.fd);
  EXPECT_LT(all.find("\r\n\r\nkeptHTTP/1.1 200 OK"), all.size()) << all;
  EXPECT_TRUE(all.ends_with("hello")) << all;
}

TEST(HttpServer, BytesBehindARequestEndNoAnswer) {
  KeptReply kept("Connection: close\r\n");
  send_on(kept.fd, "\r\n");
  kept.reply->event("a");
  send_on(kept.fd, "\r\n");
  kept.reply->event("b");
  kept.reply->end_events();
  std::string all = received(kept.fd);
  EXPECT_TRUE(all.ends_with("data: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n")) << all;
}

TEST(HttpServer, SeesThatWhoSentMoreHangsUp) {
  KeptReply kept;
  send_on(kept.fd, "\r\n");
  EXPECT_FALSE(kept.reply->gone());
  ::close(kept.fd);
  for (int i = 0; i < 1000 && !kept.reply->gone(); ++i) ::usleep(10'000);
  EXPECT_TRUE(kept.reply->gone());
}

TEST(HttpServer, AnAnswerThatIsCutOffEndsTheConnection) {
  for (bool begun : {false, true}) {
    KeptReply kept;
    if (begun) kept.reply->event("a");
    kept.reply->cut();
    std::string all = received(kept.fd);
    EXPECT_EQ(has(all, "data: a"), begun) << all;
    EXPECT_FALSE(has(all, "0\r\n\r\n")) << all;
  }
}

// For longer than a connection may be idle.
TEST(HttpServer, GivesTheWholeAnswerToWhoReadsSlowly) {
  const std::string body(64 << 20, 'a');
  neox::HttpServer server({.idle_seconds = 1},
                          [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
                            reply->whole(200, "text/plain", body);
                          });
  int fd = client_of(server.url()).send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  std::string part(4 << 20, 0);
  size_t all = 0;
  for (ssize_t n; (n = ::recv(fd, part.data(), part.size(), MSG_WAITALL)) > 0; ::usleep(150'000))
    all += static_cast<size_t>(n);
  ::close(fd);
  EXPECT_GT(all, body.size());
}

// Sends the bytes, and others one by one until the server answers.
std::string answer_to_one_who_sends_slowly(const neox::HttpServer& server, const char* bytes) {
  int fd = client_of(server.url()).send(bytes);
  pollfd answer{.fd = fd, .events = POLLIN, .revents = 0};
  while (::poll(&answer, 1, 300) == 0) ::send(fd, "a", 1, MSG_NOSIGNAL);
  return received(fd);
}

TEST(HttpServer, TakesABodyAsLongAsItComes) {
  neox::HttpServer server({.idle_seconds = 2},
                          [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
                            reply->whole(200, "text/plain", request.body);
                          });
  std::string all = answer_to_one_who_sends_slowly(
      server, "POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 10\r\n\r\nb");
  EXPECT_TRUE(all.ends_with("\r\n\r\nbaaaaaaaaa")) << all;
}

TEST(HttpServer, SaysThatABodyDidNotComeInTime) {
  neox::HttpServer server({.most_body = 100, .idle_seconds = 1},
                          [](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
                            reply->whole(200, "text/plain", "hello");
                          });
  const char* half = "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nb";
  for (const std::string& all : {received(client_of(server.url()).send(half)),
                                 answer_to_one_who_sends_slowly(server, half)}) {
    EXPECT_TRUE(all.starts_with("HTTP/1.1 408 ")) << all;
    EXPECT_TRUE(has(all, "nothing of it for 1 s, or not the whole of it in 1 s")) << all;
  }
}

}  // namespace
}  // namespace neox::testing
