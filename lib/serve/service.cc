#include "serve/service.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <iomanip>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/program.h"
#include "base/text.h"
#include "ops/random.h"
#include "serve/status.h"

namespace neox {
namespace {

constexpr const char* kNoMemory =
    "there is no memory for the answer: ask for fewer texts, tokens or logprobs";
constexpr std::chrono::milliseconds kPoll{100};

// Keys and values of all positions of a text, in bytes.
double bytes_of_text(GptNeoX& model) {
  const ModelConfig& c = model.config();
  return 2.0 * static_cast<double>(c.layers * c.groups() * c.head_size()) *
         static_cast<double>(num_positions(c)) *
         static_cast<double>(model.hidden_options().dtype().itemsize());
}

[[noreturn]] void fail_for_room(GptNeoX& model, int64_t texts, const std::string& left) {
  const ModelConfig& c = model.config();
  bool fixed = c.position_embedding == PositionEmbedding::kLearned;
  fail(Exit::kUsage, "there is no memory for the keys and values of ", counted(texts, "text"),
       " at once (--batch-size), each of which needs ", human_bytes(bytes_of_text(model)), " for ",
       with_commas(num_positions(c)), " positions", left, ". A smaller --batch-size needs less",
       fixed ? "." : "; so do shorter texts: --set seq_length=N --set max_position_embeddings=N");
}

// For so many texts. On a CPU they would be had without being there, and be missed later.
KvCache cache_for(GptNeoX& model, int64_t texts) {
  auto left = static_cast<double>(available_memory());
  if (model.hidden_options().device().is_cpu() &&
      bytes_of_text(model) * static_cast<double>(texts) > left)
    fail_for_room(model, texts, concat(", and ", human_bytes(left), " are left"));
  try {
    return model.new_cache(texts, num_positions(model.config()));
  } catch (const std::exception& e) {
    if (!is_out_of_memory(e)) throw;
    fail_for_room(model, texts, "");
  }
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

// What goes wrong with an order ends it, and no other.
template <class Work>
void Service::alone(const OrderPointer& order, const Work& work) try {
  work(*order);
} catch (const std::exception& e) {
  give_up(*order, kBroken, is_out_of_memory(e) ? kNoMemory : e.what());
}

TextOptions Service::text_options() {
  TextOptions options{.batch_size = options_.batch_size, .ends = options_.ends};
  options.read_at_once = options_.read_at_once;
  options.on_score = [this](size_t text, const TokenScore& score) {
    const Place& place = growing_.at(text);
    alone(place.order, [&](Order& own) { own.choices[place.choice].scores.push_back(score); });
  };
  options.on_token = [this](size_t text, int32_t token) {
    const Place& place = growing_.at(text);
    bool goes_on = false;
    alone(place.order, [&](Order& own) {
      goes_on = add_token(own, own.choices[place.choice], token);
      tell(place);
    });
    return goes_on && place.order->open > 0 && !place.order->reply->gone();
  };
  options.on_failure = [this](size_t text, const std::string& why) {
    give_up(*growing_.at(text).order, kBroken, why);
    growing_.erase(text);
  };
  options.on_end = [this](size_t text, TextEnd how) {
    const Place& place = growing_.at(text);
    alone(place.order, [&](Order&) { end(place, how == TextEnd::kLength ? "length" : "stop"); });
    growing_.erase(text);
  };
  return options;
}

void Service::run() {
  // Where the server's own thread ends the program nothing can be told.
  LastWords words([&, here = std::this_thread::get_id()](const std::exception& e) {
    if (std::this_thread::get_id() == here) finish_all(e.what()), server_.stop();
  });
  try {
    TextSource source = [&](bool wait, const AfterLayer& after) { return next(wait, after); };
    generate(model_, std::move(cache_), source, text_options());
  } catch (const std::exception& e) {
    finish_all(e.what());
    throw;
  }
  finish_all(kStopping);
}

std::optional<TextRequest> Service::next(bool wait, const AfterLayer& after_layer) {
  while (std::optional<Place> place = waiting(wait)) {
    std::optional<TextRequest> request;
    bool scored = score_prompt(*place, after_layer);
    alone(place->order, [&](Order&) {
      if (begin(*place)) request = request_of(*place);
    });
    if (request) return request;
    if (scored && !wait) return std::nullopt;  // texts that grow take a step in between
  }
  return std::nullopt;
}

std::optional<TextRequest> Service::request_of(const Place& place) {
  const Order& order = *place.order;
  const Choice& choice = order.choices[place.choice];
  TextRequest request{order.prompts[choice.prompt].tokens, order.sampling, order.scored()};
  request.sampling.key = random_key(order.seed, concat("serve.", place.choice));
  growing_[numbered_] = place;
  ++numbered_;
  return request;
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
bool Service::score_prompt(const Place& place, const AfterLayer& after_layer) {
  Order& order = *place.order;
  OrderedPrompt& prompt = order.prompts[order.choices[place.choice].prompt];
  if (left(order) || !order.scores_prompts() || prompt.scores) return false;
  growing_[numbered_] = place;  // is told where the model throws
  std::string fault;
  try {
    prompt.scores =
        score(model_, prompt.tokens, *order.likeliest, order.sampling.vocab, after_layer);
    fault = fault_of_numbers(*prompt.scores);
  } catch (const std::exception& e) {
    if (!is_out_of_memory(e)) throw;
    fault = kNoMemory;
  }
  growing_.erase(numbered_);
  if (!fault.empty()) give_up(order, kBroken, fault);
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
  if (--order.open > 0) return;
  if (order.streams) return answer(order);
  // Long ones, as of scores, keep other texts waiting for nothing.
  boost::asio::post(*reader_, [this, ended = place.order] { answer(*ended); });
}

void Service::answer(Order& order) try {
  if (order.streams) {
    if (order.tells_usage) order.reply->event(usage_event(order, served_));
    order.reply->event("[DONE]");
    order.reply->end_events();
  } else {
    order.reply->whole(kOk, kJson, answer_of(order, served_));
  }
  log(order, "");
} catch (const std::exception& e) {
  fail_answer(order, kBroken, is_out_of_memory(e) ? kNoMemory : e.what());
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
  if (std::exchange(order.open, 0) > 0) fail_answer(order, status, why);
}

// Where not even that can be told the answer is cut off.
void Service::fail_answer(Order& order, int status, const std::string& why) const try {
  if (status == kBroken) log(order, (why + ": ").c_str());
  if (!order.reply->begun()) return refuse(*order.reply, order.form, status, why);
  order.reply->event(error_body(order.form, status, why));
  order.reply->end_events();
} catch (const std::exception&) { order.reply->cut(); }

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
