#include "serve/http.h"

#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/http_connection.h"

namespace neox {
namespace {

namespace asio = boost::asio;
using boost::asio::ip::tcp;
using Code = boost::system::error_code;

constexpr std::chrono::milliseconds kPause{100};

// Of "HOST:PORT", "[HOST]:PORT" or "PORT".
std::pair<std::string, std::string> host_and_port(const std::string& listen) {
  size_t colon = listen.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : listen.substr(0, colon);
  std::string port = colon == std::string::npos ? listen : listen.substr(colon + 1);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  auto number = number_of<int>(port);
  check_usage(number && *number >= 0 && *number < 65536 && !host.empty(), "--listen ", listen,
              ": must be HOST:PORT or PORT, such as 127.0.0.1:5000, 0.0.0.0:5000 or 5000");
  return {host, port};
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& options, Handler handler)
      : shared{options, std::move(handler)}, acceptor(context) {
    auto [host, port] = host_and_port(options.listen);
    Code error;
    tcp::resolver resolver(context);
    auto found = resolver.resolve(host, port, tcp::resolver::passive, error);
    check_usage(!error, "--listen ", options.listen, ": no address of ", host, ": ",
                error.message());
    tcp::endpoint endpoint = *found.begin();
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
    check_usage(
        !error, "--listen ", options.listen, ": cannot listen there: ", error.message(),
        error == boost::system::errc::address_not_available
            ? "; 0.0.0.0 stands for all addresses that this machine has"
            : "; another program may have the port: take another one, or 0 for any free one");
    accept();
    thread = std::thread([this] { run(); });
  }
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // What is thrown, for lack of memory, takes the connection with it that it was for.
  void run() {
    for (bool more = true; more;) try {
        context.run();
        more = false;
      } catch (const std::exception& e) { log_warning("a connection was dropped: ", e.what()); }
  }

  void accept() {
    acceptor.async_accept([this](Code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error && shared.connections < shared.options.most_connections)
        converse(std::move(socket), shared);
      if (!error) return accept();
      pause.expires_after(kPause);  // no more files may be open
      pause.async_wait([this](Code) { accept(); });
    });
  }

  void stop() {
    if (!thread.joinable()) return;
    std::promise<void> sent;  // behind all that has been posted
    asio::post(context, [&] { acceptor.close(), sent.set_value(); });
    sent.get_future().wait();
    auto end = std::chrono::steady_clock::now() + kHttpLinger;
    while (shared.writing > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    context.stop();
    thread.join();
  }

  HttpShared shared;  // connections in the context need it
  asio::io_context context{1};
  tcp::acceptor acceptor;
  asio::steady_timer pause{context};
  std::thread thread;
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {}

HttpServer::~HttpServer() = default;

void HttpServer::stop() { impl_->stop(); }

std::string HttpServer::url() const {
  tcp::endpoint here = impl_->acceptor.local_endpoint();
  std::ostringstream text;
  text << "http://";
  if (here.address().is_unspecified())
    text << asio::ip::host_name() << ":" << here.port();
  else
    text << here;
  return text.str();
}

}  // namespace neox
