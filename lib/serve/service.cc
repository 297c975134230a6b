#include "serve/service.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <charconv>
#include <chrono>
#include <iomanip>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "ops/random.h"
#include "serve/page.h"

namespace neox {
namespace {

constexpr int kOk = 200, kBad = 400, kNoKey = 401, kNotFound = 404, kNotAllowed = 405,
              kBroken = 500, kClosing = 503;
constexpr const char* kJson = "application/json";
constexpr const char* kStopping = "the server is stopping";
constexpr std::chrono::milliseconds kPoll{100};

struct Route {
  const char *path, *method;
  ApiForm form;
};
constexpr Route kRoutes[] = {{"/api", "PUT", ApiForm::kMegatron},
                             {"/api", "POST", ApiForm::kMegatron},
                             {"/v1/completions", "POST", ApiForm::kCompletions},
                             {"/v1/chat/completions", "POST", ApiForm::kChat}};

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

void refuse(HttpReply& reply, ApiForm form, int status, const std::string& message) {
  reply.whole(status, kJson, error_body(form, status, message));
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

// Keys and values of all positions for so many texts.
KvCache cache_for(GptNeoX& model, int64_t texts) try {
  return model.new_cache(texts, num_positions(model.config()));
} catch (const std::exception& e) {
  if (!is_out_of_memory(e)) throw;
  const ModelConfig& c = model.config();
  auto positions = num_positions(c);
  auto vectors = 2.0 * static_cast<double>(c.layers) * static_cast<double>(positions);
  auto vector_bytes = static_cast<double>(c.groups() * c.head_size()) *
                      static_cast<double>(model.hidden_options().dtype().itemsize());
  bool fixed = c.position_embedding == PositionEmbedding::kLearned;
  fail(Exit::kUsage, "there is no memory for the keys and values of ", counted(texts, "text"),
       " at once (--batch-size), each of which needs ", human_bytes(vectors * vector_bytes),
       " for ", with_commas(positions), " positions. A smaller --batch-size needs less",
       fixed ? "." : "; so do shorter texts: --set seq_length=N --set max_position_embeddings=N");
}

}  // namespace

Service::Service(GptNeoX& model, const ServedModel& served, const ServiceOptions& options)
    : model_(model),
      served_(served),
      options_(options),
      cache_(cache_for(model, options.batch_size)),
      reader_(std::make_unique<boost::asio::thread_pool>(1)),
      server_(options.http, [this](HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
        handle(std::move(request), reply);
      }) {}

// The threads of reader and server ask for this object, and its answers for the server: what waits
// to be read is refused while there still is one.
Service::~Service() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  reader_->join();
  server_.stop();
  queue_.clear();
  growing_.clear();
}

void Service::handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  const auto& path = request.path;
  bool reads = request.method == "GET" || request.method == "HEAD";
  if (path == "/health" && reads) return reply->whole(kOk, kJson, "{\"status\": \"ok\"}\n");
  if ((path == "/" || path == "/index.html") && reads)
    return reply->whole(kOk, "text/html; charset=utf-8", kPage);
  auto route = std::ranges::find_if(kRoutes, [&](const Route& r) { return path == r.path; });
  ApiForm form = route == std::end(kRoutes) ? ApiForm::kCompletions : route->form;
  if (!options_.key.empty() && !same(request.authorization, "Bearer " + options_.key))
    return refuse(*reply, form, kNoKey, "this server wants a key: Authorization: Bearer KEY");
  if (path == "/v1/models" && reads) return reply->whole(kOk, kJson, models_body(served_));
  constexpr std::string_view kOne = "/v1/models/";
  if (path.starts_with(kOne) && path != kOne && reads) {
    std::string name = path.substr(kOne.size());
    if (names(name, served_)) return reply->whole(kOk, kJson, dumped(model_body(served_)) + "\n");
    return refuse(*reply, form, kNotFound,
                  concat("there is no model ", name, "; this server has ", served_.name));
  }
  if (route == std::end(kRoutes))
    return refuse(*reply, form, kNotFound,
                  concat("there is no ", path,
                         "; there are /v1/completions, "
                         "/v1/chat/completions, /v1/models, /api, /health"));
  if (std::ranges::none_of(
          kRoutes, [&](const Route& r) { return path == r.path && request.method == r.method; }))
    return refuse(*reply, form, kNotAllowed,
                  concat(path, " takes ", route->method, ", not ", request.method));
  take(form, std::move(request.body), reply);
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
  } catch (const Error& e) {
    refuse(*reply, form, kBad, e.what());
  } catch (const std::exception& e) { refuse(*reply, form, kBroken, e.what()); }
}

void Service::run() {
  TextOptions options{.batch_size = options_.batch_size, .ends = options_.ends};
  options.on_score = [&](size_t text, const TokenScore& score) {
    const auto& [order, choice] = growing_.at(text);
    order->choices[choice].scores.push_back(score);
  };
  options.on_token = [&](size_t text, int32_t token) {
    const Place& place = growing_.at(text);
    bool goes_on = add_token(*place.order, place.order->choices[place.choice], token);
    tell(place);
    return goes_on && place.order->open > 0 && !place.order->reply->gone();
  };
  options.on_failure = [&](size_t text, const std::string& why) {
    give_up(*growing_.at(text).order, kBroken, why);
    growing_.erase(text);
  };
  options.on_end = [&](size_t text, TextEnd how) {
    end(growing_.at(text), how == TextEnd::kLength ? "length" : "stop");
    growing_.erase(text);
  };
  // Where the server's own thread ends the program nothing can be told.
  LastWords words([&, here = std::this_thread::get_id()](const std::exception& e) {
    if (std::this_thread::get_id() == here) finish_all(e.what()), server_.stop();
  });
  try {
    generate(
        model_, std::move(cache_), [&](bool wait) { return next(wait); }, options);
  } catch (const std::exception& e) {
    finish_all(e.what());
    throw;
  }
  finish_all(kStopping);
}

std::optional<TextRequest> Service::next(bool wait) {
  while (std::optional<Place> place = waiting(wait)) {
    bool scored = score_prompt(*place);
    if (!begin(*place)) {
      if (scored && !wait) return std::nullopt;  // texts that grow take a step in between
      continue;
    }
    const Order& order = *place->order;
    const Choice& choice = order.choices[place->choice];
    TextRequest request{order.prompts[choice.prompt].tokens, order.sampling, order.likeliest};
    request.sampling.key = random_key(order.seed, concat("serve.", place->choice));
    growing_[numbered_++] = *place;
    return request;
  }
  return std::nullopt;
}

// The next text: of each order that waits one in turn, so that one of many texts keeps no other
// waiting for its last. None where none is there, or none comes any more.
std::optional<Service::Place> Service::waiting(bool wait) {
  std::unique_lock lock(mutex_);
  auto come = [&] { return !queue_.empty(); };
  while (!come() && wait && !stopped_) came_.wait_for(lock, kPoll, come);
  if (stopped_) closed_ = true;
  if (stopped_ || !come()) return std::nullopt;
  Waiting first = std::move(queue_.front());
  queue_.pop_front();
  Place place{first.order, first.next++};
  bool more = first.order->open > 0 && first.next < first.order->choices.size();
  if (more) queue_.push_back(std::move(first));
  return place;
}

// Computes the scores of a prompt. False where they are known, or nobody waits for them.
bool Service::score_prompt(const Place& place) {
  Order& order = *place.order;
  OrderedPrompt& prompt = order.prompts[order.choices[place.choice].prompt];
  if (left(order) || !order.scores_prompts() || prompt.scores) return false;
  growing_[numbered_] = place;  // is told where the model throws
  prompt.scores = score(model_, prompt.tokens, *order.likeliest, order.sampling.vocab);
  growing_.erase(numbered_);
  if (std::string fault = fault_of_numbers(*prompt.scores); !fault.empty())
    give_up(order, kBroken, fault);
  return true;
}

// What comes before the first new token. False where none is to come.
bool Service::begin(const Place& place) {
  Order& order = *place.order;
  Choice& choice = order.choices[place.choice];
  if (left(order)) return false;
  if (!order.scores_prompts()) {
    if (order.sampling.max_tokens == 0) end(place, "length");
    return order.sampling.max_tokens > 0;
  }
  bool one = order.scores_next();
  if (!one && order.sampling.max_tokens > 0) return true;
  if (!one) {
    end(place, "length");
    return false;
  }
  const TokenScore& next = order.prompts[choice.prompt].scores->next;
  choice.scores.push_back(next);
  bool ends = std::ranges::find(options_.ends, next.token) != options_.ends.end();
  if (!ends) add_token(order, choice, next.token);
  end(place, ends ? "stop" : "length");
  return false;
}

// A piece of a text as it comes.
void Service::tell(const Place& place) {
  Order& order = *place.order;
  Choice& choice = order.choices[place.choice];
  if (!order.streams || !choice.finish.empty()) return;  // end() tells the rest
  std::string piece = untold(order, choice);
  if (!piece.empty()) order.reply->event(event_of(order, served_, choice, piece));
}

void Service::end(const Place& place, const std::string& finish) {
  Order& order = *place.order;
  Choice& choice = order.choices[place.choice];
  end_choice(choice, finish);
  if (left(order)) return;
  if (order.streams) order.reply->event(event_of(order, served_, choice, untold(order, choice)));
  if (--order.open == 0) answer(order);
}

// A whole one may be so large that there is no memory for it, while others have what they need.
void Service::answer(Order& order) {
  if (order.streams) {
    if (order.tells_usage) order.reply->event(usage_event(order, served_));
    order.reply->event("[DONE]");
    order.reply->end_events();
    return log(order, "");
  }
  try {
    order.reply->whole(kOk, kJson, answer_of(order, served_));
  } catch (const std::bad_alloc&) {
    refuse(*order.reply, order.form, kBroken,
           "there is no memory for the answer: ask for fewer texts, tokens or logprobs");
    return log(order, "no memory for the answer: ");
  }
  log(order, "");
}

// All that wait, and those that grow, are told that nothing comes.
void Service::finish_all(const std::string& why) {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [number, place] : growing_) queue_.push_back({place.order});
  growing_.clear();
  for (const Waiting& waiting : queue_) give_up(*waiting.order, kClosing, why);
  queue_.clear();
}

// None of its texts goes on.
void Service::give_up(Order& order, int status, const std::string& why) {
  if (std::exchange(order.open, 0) == 0) return;
  if (!order.reply->begun()) return refuse(*order.reply, order.form, status, why);
  order.reply->event(error_body(order.form, status, why));
  order.reply->end_events();
}

// Whether nobody waits for it any more.
bool Service::left(Order& order) const {
  if (order.open == 0) return true;
  if (!order.reply->gone()) return false;
  if (std::exchange(order.open, 0) > 0) log(order, "given up by the client: ");
  return true;
}

void Service::log(const Order& order, const char* what) const {
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - order.begun;
  std::ostringstream seconds;
  seconds << std::setprecision(3) << taken.count();
  log_info(order.id, ": ", what, counted(std::ssize(order.choices), "text"), ", ",
           with_commas(order.prompt_tokens()), " prompt and ", with_commas(order.new_tokens()),
           " new tokens in ", seconds.str(), " s");
}

}  // namespace neox
