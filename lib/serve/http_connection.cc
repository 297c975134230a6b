#include "serve/http_connection.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "serve/http_answer.h"

namespace neox {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using Code = beast::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMostHeader = 16 << 10;
constexpr size_t kBodyPiece = 1 << 20;  // which a slow client may take idle_seconds for
constexpr int kMalformed = 400, kTooSlow = 408, kTooLarge = 413;
constexpr unsigned kHttp11 = 11;                 // as Beast has versions
constexpr std::chrono::milliseconds kLook{100};  // at a client who is answered

// One client: a request, its answer, the next one.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, HttpShared& shared)
      : stream_(std::move(socket)),
        body_timer_(stream_.get_executor()),
        hang_up_timer_(stream_.get_executor()),
        shared_(shared) {
    ++shared_.connections;
    Code unknown;
    tcp::endpoint peer = stream_.socket().remote_endpoint(unknown);
    if (!unknown) from_ = peer.address().to_string();
    stream_.socket().set_option(tcp::no_delay(true), unknown);
  }
  ~Connection() {
    if (gone_) *gone_ = true;
    --shared_.connections;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void read() {
    parser_.emplace();
    parser_->body_limit(shared_.options.most_body);
    parser_->header_limit(kMostHeader);
    late_ = false;
    stream_.expires_after(idle());
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](Code error, size_t) { self->on_header(error); });
  }

  // Of the answer to request `number`; what belongs to an earlier one is dropped.
  void send(uint64_t number, std::string bytes, bool last) {
    if (number != number_ || ended_ || !stream_.socket().is_open()) return;
    ended_ = last;
    kept_ += bytes.size();
    out_.push_back(std::move(bytes));
    if (!last && kept_ > shared_.options.most_kept) return close();
    if (out_.size() > 1) return;
    ++shared_.writing;
    write();
  }

  auto executor() { return stream_.get_executor(); }
  bool keeps() const { return keeps_; }
  bool wants_head_alone() const { return head_alone_; }
  unsigned version() const { return version_; }

 private:
  class Reply;

  void on_header(Code error);
  void read_body();
  void on_read(Code error);
  void answer(HttpRequest request);

  std::chrono::seconds idle() const { return std::chrono::seconds(shared_.options.idle_seconds); }
  // In which a body must have come, however many bytes at a time.
  std::chrono::seconds body_time() const {
    return idle() * static_cast<int64_t>(1 + shared_.options.most_body / kBodyPiece);
  }

  void refuse(int status, const std::string& why) {
    keeps_ = false, ended_ = false;
    send(number_, refusal(status, why, version_), true);
  }

  // Of the first one as much as the client takes now: it has the time anew for what is left.
  void write() {
    stream_.expires_after(idle());
    stream_.async_write_some(
        asio::buffer(out_.front()) + written_,
        [self = shared_from_this()](Code error, size_t n) { self->on_written(error, n); });
  }

  void on_written(Code error, size_t n) {
    written_ += n;
    if (!error && written_ < out_.front().size()) return write();
    if (!error) {
      kept_ -= out_.front().size();
      written_ = 0;
      out_.pop_front();
      if (!out_.empty()) return write();
    }
    --shared_.writing;
    if (error) return close();
    stream_.expires_never();
    if (!ended_) return;
    if (keeps_) return read();
    Code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kHttpLinger);
    drain();
  }

  // What the client still sends is read, or it might never see the answer.
  void drain() {
    buffer_.clear();
    stream_.async_read_some(
        buffer_.prepare(kMostHeader),
        [self = shared_from_this()](Code error, size_t) { error ? self->close() : self->drain(); });
  }

  // Owns it while an answer is under way, and sees that the client hangs up, also behind bytes
  // that it has sent on: those are read as the next request. Or that the answer is cut off.
  void watch() {
    hang_up_timer_.expires_after(kLook);
    hang_up_timer_.async_wait([self = shared_from_this(), number = number_](Code) {
      if (number != self->number_ || self->ended_ || !self->stream_.socket().is_open()) return;
      *self->gone_ || self->hung_up() ? self->close() : self->watch();
    });
  }

  bool hung_up() {
    pollfd client{.fd = stream_.socket().native_handle(), .events = POLLRDHUP, .revents = 0};
    return ::poll(&client, 1, 0) > 0;
  }

  void close() {
    if (gone_) *gone_ = true;
    Code ignored;
    stream_.socket().close(ignored);
  }

  beast::tcp_stream stream_;
  asio::steady_timer body_timer_;     // until what comes of a body is late
  asio::steady_timer hang_up_timer_;  // until the next look at a client who is answered
  HttpShared& shared_;
  std::string from_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::deque<std::string> out_;
  size_t kept_ = 0;      // bytes in out_
  size_t written_ = 0;   // of its first
  uint64_t number_ = 0;  // of the request
  Clock::time_point body_until_;
  bool late_ = false;  // its body took too long
  bool ended_ = true;  // its answer is whole
  bool keeps_ = false;
  bool head_alone_ = false;  // a HEAD request
  unsigned version_ = kHttp11;
  std::shared_ptr<std::atomic<bool>> gone_;
};

class Connection::Reply : public HttpReply {
 public:
  Reply(const std::shared_ptr<Connection>& to, uint64_t number,
        std::shared_ptr<std::atomic<bool>> gone)
      : to_(to),
        executor_(to->executor()),
        number_(number),
        keeps_(to->keeps()),
        head_alone_(to->wants_head_alone()),
        version_(to->version()),
        gone_(std::move(gone)) {}
  ~Reply() override {
    try {
      if (!begun_) whole(500, "application/json", R"({"message": "the request was dropped"})", "");
    } catch (const std::exception&) { cut(); }
  }
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  void whole(int status, const std::string& type, std::string body,
             const std::string& fields) override {
    std::string answer = whole_answer(head_of(status, type, keeps_, version_) + fields, body);
    if (head_alone_) answer.resize(answer.size() - body.size());
    if (begun_.exchange(true)) return;  // not before what may need more memory than there is
    send(std::move(answer), true);
  }

  void event(const std::string& data) override {
    std::string text = concat("data: ", data, "\n\n");
    if (in_chunks()) text = chunk_of(text);
    if (!begun_) text.insert(0, head_of_events());
    begun_ = true;
    send(std::move(text), false);
  }

  void end_events() override { send(in_chunks() ? "0\r\n\r\n" : "", true); }
  void cut() override { *gone_ = true; }
  bool begun() const override { return begun_; }
  bool gone() const override { return *gone_; }

 private:
  bool in_chunks() const { return version_ >= kHttp11; }
  std::string head_of_events() const {
    return head_of(200, "text/event-stream", keeps_, version_) +
           (in_chunks() ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
  }
  // Where a part is lost nothing can follow.
  void send(std::string bytes, bool last) try {
    asio::post(executor_, [to = to_, number = number_, bytes = std::move(bytes), last]() mutable {
      if (auto connection = to.lock()) connection->send(number, std::move(bytes), last);
    });
  } catch (const std::exception&) { cut(); }

  std::weak_ptr<Connection> to_;
  beast::tcp_stream::executor_type executor_;
  uint64_t number_;
  bool keeps_, head_alone_;
  unsigned version_;
  std::shared_ptr<std::atomic<bool>> gone_;
  std::atomic<bool> begun_ = false;
};

// Clients with much to send wait for a while to hear whether it is wanted (RFC 9110, 10.1.1).
void Connection::on_header(Code error) {
  if (error) return on_read(error);
  body_until_ = Clock::now() + body_time();
  parser_->eager(true);
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(kContinue),
                    [self = shared_from_this()](Code failed, size_t) {
                      failed ? self->close() : self->read_body();
                    });
}

// As much as comes: the client has the time anew for what is left, until that for the whole is up.
// The stream's own timer would close it without an answer.
void Connection::read_body() {
  if (parser_->is_done()) return on_read({});
  if (late_)
    return refuse(kTooSlow,
                  concat("the body of the request did not come: nothing of it for ", idle().count(),
                         " s, or not the whole of it in ", body_time().count(), " s"));
  stream_.expires_never();
  body_timer_.expires_at(std::min(Clock::now() + idle(), body_until_));
  body_timer_.async_wait([self = shared_from_this(), number = number_](Code stopped) {
    bool up = number == self->number_ && self->body_timer_.expiry() <= Clock::now();
    if (!stopped && up) self->late_ = true, self->stream_.cancel();
  });
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this()](Code error, size_t) {
                          error && !self->late_ ? self->on_read(error) : self->read_body();
                        });
}

void Connection::on_read(Code error) {
  body_timer_.expires_at(Clock::time_point::max());
  bool large = error == http::error::body_limit || error == http::error::header_limit;
  bool silent = error == http::error::end_of_stream || error == http::error::partial_message;
  if (large) return refuse(kTooLarge, "the request is too large");
  if (!silent && error.category() == Code(http::error::bad_method).category())
    return refuse(kMalformed, concat("the request is no HTTP: ", error.message()));
  if (error) return close();
  auto message = parser_->release();
  head_alone_ = message.method() == http::verb::head;
  version_ = message.version();
  // HTTP/1.0 knows the end of a stream by that of the connection.
  keeps_ = message.keep_alive() && version_ >= kHttp11;
  std::string target(message.target());
  answer({std::string(message.method_string()), target.substr(0, target.find('?')),
          std::move(message.body()), std::string(message[http::field::authorization]), from_});
}

void Connection::answer(HttpRequest request) {
  ++number_;
  ended_ = false;
  gone_ = std::make_shared<std::atomic<bool>>(false);
  stream_.expires_never();
  watch();
  try {
    shared_.handler(std::move(request),
                    std::make_shared<Reply>(shared_from_this(), number_, gone_));
  } catch (const std::exception& e) {
    log_warning("a request was dropped: ", e.what());  // its reply says so as it goes
  }
}

}  // namespace

void converse(tcp::socket socket, HttpShared& shared) {
  std::make_shared<Connection>(std::move(socket), shared)->read();
}

}  // namespace neox
