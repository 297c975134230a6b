// Requests to a Service up to where they wait for their texts: in the server's thread, and the
// reader's.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <charconv>
#include <chrono>
#include <iomanip>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "generate/text_stream.h"
#include "serve/page.h"
#include "serve/service.h"
#include "serve/status.h"

namespace neox {
namespace {

struct Route {
  std::string_view path, methods;  // methods: as the header Allow lists them
  ApiForm form = ApiForm::kCompletions;
};
constexpr std::string_view kReads = "GET, HEAD, OPTIONS", kPosts = "POST, OPTIONS";
constexpr std::string_view kOneModel = "/v1/models/";  // and a name
constexpr Route kRoutes[] = {{"/", kReads},
                             {"/index.html", kReads},
                             {"/health", kReads},
                             {"/v1/models", kReads},
                             {kOneModel, kReads},
                             {"/api", "PUT, POST, OPTIONS", ApiForm::kMegatron},
                             {"/v1/completions", kPosts, ApiForm::kCompletions},
                             {"/v1/chat/completions", kPosts, ApiForm::kChat}};

const Route* route_of(std::string_view path) {
  if (path == kOneModel) return nullptr;
  if (path.starts_with(kOneModel)) path = kOneModel;
  auto route = std::ranges::find(kRoutes, path, &Route::path);
  return route == std::end(kRoutes) ? nullptr : route;
}

bool takes(const Route& route, const std::string& method) {
  auto methods = split(route.methods, ',');
  return std::ranges::any_of(methods, [&](const std::string& m) { return trim(m) == method; });
}

// A scheme is written in any case (RFC 9110, 11.1).
std::string with_bearer(std::string authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (equal_words(std::string_view(authorization).substr(0, kScheme.size()), kScheme))
    authorization.replace(0, kScheme.size(), kScheme);
  return authorization;
}

// Takes the same time wherever they differ.
bool same(const std::string& a, const std::string& b) {
  int different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) different |= a[i] ^ b[i];
  return different == 0;
}

std::string new_id(ApiForm form) {
  std::random_device device;
  std::ostringstream id;
  id << (form == ApiForm::kChat ? "chatcmpl-" : "cmpl-") << std::hex << std::setfill('0');
  for (int i = 0; i < 3; ++i) id << std::setw(8) << device();
  return id.str();
}

Json model_body(const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "neox.cpp"},
          {"max_model_len", num_positions(model.config)}};
}

std::string models_body(const ServedModel& model) {
  return dumped({{"object", "list"}, {"data", Json::array({model_body(model)})}}) + "\n";
}

// With the bytes that %XX stands for (RFC 3986, 2.1); any other % stands for itself.
std::string unescaped(std::string_view path) {
  std::string text;
  for (size_t at = 0; at < path.size(); ++at) {
    const char* digits = path.data() + at + 1;
    uint8_t byte = 0;
    bool escape = path[at] == '%' && at + 2 < path.size() &&
                  std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    text += escape ? static_cast<char>(byte) : path[at];
    if (escape) at += 2;
  }
  return text;
}

// Whether a path names it, as it is or with some of its bytes as %XX.
bool names(std::string_view path, const ServedModel& model) {
  return path == model.name || unescaped(path) == model.name;
}

}  // namespace

void Service::handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  const std::string &method = request.method, &path = request.path;
  const Route* route = route_of(path);
  ApiForm form = route ? route->form : ApiForm::kCompletions;
  bool open = path == "/" || path == "/index.html" || path == "/health" || method == "OPTIONS";
  if (!open && !options_.key.empty() &&
      !same(with_bearer(request.authorization), "Bearer " + options_.key))
    return reply->whole(
        kNoKey, kJson,
        error_body(form, kNoKey, "this server wants a key: Authorization: Bearer KEY",
                   "invalid_api_key"),
        "WWW-Authenticate: Bearer\r\n");
  if (!route)
    return refuse(*reply, form, kNotFound,
                  concat("there is no ", path,
                         "; there are /v1/completions, "
                         "/v1/chat/completions, /v1/models, /api, /health"));
  std::string allow = concat("Allow: ", route->methods, "\r\n");
  if (method == "OPTIONS") return reply->whole(kOk, kJson, "", allow);
  if (!takes(*route, method)) {
    std::string message = concat(path, " takes ", route->methods, ", not ", method);
    return reply->whole(kNotAllowed, kJson, error_body(form, kNotAllowed, message), allow);
  }
  route->methods == kReads ? show(path, *reply) : take(form, std::move(request.body), reply);
}

// What is there without a body that asks for it.
void Service::show(const std::string& path, HttpReply& reply) const {
  if (path == "/health") return reply.whole(kOk, kJson, "{\"status\": \"ok\"}\n");
  if (path == "/v1/models") return reply.whole(kOk, kJson, models_body(served_));
  if (!path.starts_with(kOneModel)) return reply.whole(kOk, "text/html; charset=utf-8", kPage);
  std::string name = path.substr(kOneModel.size());
  if (names(name, served_)) return reply.whole(kOk, kJson, dumped(model_body(served_)) + "\n");
  std::string message = concat("there is no model ", name, "; this server has ", served_.name);
  reply.whole(kNotFound, kJson,
              error_body(ApiForm::kCompletions, kNotFound, message, "model_not_found"));
}

void Service::take(ApiForm form, std::string body, const std::shared_ptr<HttpReply>& reply) {
  std::lock_guard lock(mutex_);
  if (closed_) return refuse(*reply, form, kClosing, kStopping);
  boost::asio::post(*reader_, [this, form, body = std::move(body), reply] {
    try {
      read(form, body, reply);
    } catch (const std::exception& e) {
      log_warning("a request was dropped: ", e.what());  // its reply says so as it goes
    }
  });
}

bool Service::closed() {
  std::lock_guard lock(mutex_);
  return closed_;
}

// Whose turn comes when nobody waits for the answer, or none is given any more, is not read.
void Service::read(ApiForm form, const std::string& body, const std::shared_ptr<HttpReply>& reply) {
  if (reply->gone()) return;
  if (closed()) return refuse(*reply, form, kClosing, kStopping);
  try {
    auto order = std::make_shared<Order>(read_order(form, body, served_));
    order->id = new_id(form);
    order->created = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    order->begun = std::chrono::steady_clock::now();
    order->reply = reply;
    std::lock_guard lock(mutex_);
    if (closed_) return refuse(*reply, form, kClosing, kStopping);
    queue_.push_back({order});
    came_.notify_one();
  } catch (const OrderError& e) {
    reply->whole(kBad, kJson, error_body(form, kBad, e.what(), e.code));
  } catch (const Error& e) {
    refuse(*reply, form, kBad, e.what());
  } catch (const std::exception& e) { refuse(*reply, form, kBroken, e.what()); }
}

}  // namespace neox
