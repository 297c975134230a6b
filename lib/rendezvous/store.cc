#include "rendezvous/store.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/program.h"
#include "comm/quiet_libtorch.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;
using Texts = std::vector<std::string>;

constexpr milliseconds kTick{100};
constexpr milliseconds kConnect{2000};                   // to a store that has accepted
constexpr milliseconds kAnswer{std::chrono::hours(24)};  // who waits gives up, not c10d
constexpr size_t kPartBytes = size_t{4} << 20;

// c10d logs each failed call with a stack trace. What matters of it is thrown here, and told in our
// words.
struct QuietC10d : QuietLibTorch {
  QuietC10d() : QuietLibTorch(Least::kFatal) {}
};

// A thread that starts meanwhile takes over that SIGPIPE is blocked: a client that hangs up before
// it has read its answer, as who looks for open ports does, ends no process then.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~NoBrokenPipes() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoBrokenPipes(const NoBrokenPipes&) = delete;

 private:
  sigset_t before_;
};

Bytes to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

Texts multi_get(c10d::TCPStore& store, const Texts& keys) {
  Texts values;
  for (const Bytes& value : store.multiGet(keys)) values.push_back(to_text(value));
  return values;
}

bool wait_for_keys(c10d::TCPStore& store, const Texts& keys, milliseconds limit) try {
  store.wait(keys, std::max(limit, milliseconds(1)));
  return true;
} catch (const c10::DistStoreError&) { return false; }

std::string part_key(const std::string& key, size_t part) { return concat(key, "/", part); }

}  // namespace

struct StoreServer::Store {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer(const Listener& listener,
                         std::span<const std::pair<std::string, std::string>> values)
    : store_(std::make_unique<Store>()) {
  QuietC10d quiet;
  NoBrokenPipes of_its_thread;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(listener.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener.fd;
  store_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const auto& [key, value] : values) store_->store->set(key, to_bytes(value));
}

StoreServer::~StoreServer() {
  QuietC10d quiet;
  store_.reset();
}

struct StoreClient::Line {
  std::mutex mutex;
  std::condition_variable changed;
  State state = State::kConnecting;
  std::string greeting, problem;
  std::deque<std::function<void(c10d::TCPStore&)>> tasks;
  bool lost = false, closed = false, ended = false;

  c10::intrusive_ptr<c10d::TCPStore> connect(const Address& address, const std::string& key,
                                             Knock knock_first);
  void serve(c10d::TCPStore& store);
  void run(const Address& address, const std::string& key, Knock knock_first);
  void enter(State next, const std::string& text);
};

c10::intrusive_ptr<c10d::TCPStore> StoreClient::Line::connect(const Address& address,
                                                              const std::string& key,
                                                              Knock knock_first) {
  if (knock_first == Knock::kBefore) knock(address, kConnect);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(address.port);
  options.waitWorkers = false;
  options.timeout = kConnect;
  auto store = c10::make_intrusive<c10d::TCPStore>(address.host, options);
  check(store->check({key}), to_string(address), ": the store of another job");
  store->setTimeout(kAnswer);
  enter(State::kConnected, store->get_to_str(key));
  return store;
}

void StoreClient::Line::enter(State next, const std::string& text) {
  std::lock_guard lock(mutex);
  state = next;
  (next == State::kConnected ? greeting : problem) = text;
  changed.notify_all();
}

void StoreClient::Line::serve(c10d::TCPStore& store) {
  for (std::unique_lock lock(mutex);;) {
    changed.wait(lock, [&] { return closed || !tasks.empty(); });
    if (tasks.empty()) return;
    auto task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    {
      QuietC10d quiet;
      task(store);
    }
    lock.lock();
  }
}

void StoreClient::Line::run(const Address& address, const std::string& key, Knock knock_first) {
  try {
    c10::intrusive_ptr<c10d::TCPStore> store;
    {
      QuietC10d quiet;
      store = connect(address, key, knock_first);
    }
    serve(*store);
  } catch (const Error& e) { enter(State::kFailed, e.what()); } catch (const std::exception&) {
    enter(State::kFailed, to_string(address) + ": something that is no rendezvous store");
  }
  std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

StoreClient::StoreClient(const Address& address, const std::string& key, Knock knock)
    : address_(address), line_(std::make_shared<Line>()) {
  thread_ = std::thread([line = line_, address, key, knock] { line->run(address, key, knock); });
}

StoreClient::~StoreClient() {
  std::unique_lock lock(line_->mutex);
  line_->closed = true;
  line_->changed.notify_all();
  // Outside of c10d the thread is certain to end, however late it is.
  bool ends = line_->changed.wait_for(lock, kTick, [&] {
    return line_->ended || (answered_ && line_->state != State::kConnecting);
  });
  lock.unlock();
  if (ends) {
    thread_.join();
  } else {
    end_without_destructors();
    thread_.detach();
  }
}

StoreClient::State StoreClient::wait_connected(milliseconds limit) {
  std::unique_lock lock(line_->mutex);
  line_->changed.wait_for(lock, limit, [&] { return line_->state != State::kConnecting; });
  return line_->state;
}

const std::string& StoreClient::greeting() const { return line_->greeting; }
const std::string& StoreClient::problem() const { return line_->problem; }

void StoreClient::on_wait(std::function<void(milliseconds)> on_wait) {
  on_wait_ = std::move(on_wait);
}

template <class F>
void StoreClient::post(F f) {
  std::lock_guard lock(line_->mutex);
  if (line_->lost) throw StoreLost("the rendezvous store at " + to_string(address_) + " is lost");
  line_->tasks.push_back(std::move(f));
  line_->changed.notify_all();
}

// f holds its arguments, since it may go on after this has given up.
template <class F>
auto StoreClient::call(F f) {
  using Result = std::invoke_result_t<F, c10d::TCPStore&>;
  auto task = std::make_shared<std::packaged_task<Result(c10d::TCPStore&)>>(std::move(f));
  std::future<Result> result = task->get_future();
  post([task](c10d::TCPStore& store) { (*task)(store); });
  answered_ = false;
  try {
    for (milliseconds waited{0}; result.wait_for(kTick) != std::future_status::ready;) {
      waited += kTick;
      if (on_wait_) on_wait_(waited);
    }
    answered_ = true;
    return result.get();
  } catch (const c10::Error& e) {
    line_->lost = true;
    throw StoreLost(concat("the rendezvous store at ", to_string(address_),
                           " is lost: ", e.what_without_backtrace()));
  } catch (...) {
    line_->lost = true;
    throw;
  }
}

void StoreClient::set(const std::string& key, const std::string& value) {
  call([=](c10d::TCPStore& store) { store.set(key, to_bytes(value)); });
}

std::string StoreClient::get(const std::string& key) { return get(Texts{key}).front(); }

Texts StoreClient::get(std::span<const std::string> keys) {
  return call([keys = Texts(keys.begin(), keys.end())](c10d::TCPStore& store) {
    return multi_get(store, keys);
  });
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& value) {
  return call([=](c10d::TCPStore& store) {
    return to_text(store.compareSet(key, to_bytes(expected), to_bytes(value)));
  });
}

int64_t StoreClient::add(const std::string& key, int64_t amount) {
  return call([=](c10d::TCPStore& store) { return store.add(key, amount); });
}

bool StoreClient::has(const std::string& key) {
  return call([=](c10d::TCPStore& store) { return store.check({key}); });
}

bool StoreClient::wait(std::span<const std::string> keys, milliseconds limit) {
  return call([keys = Texts(keys.begin(), keys.end()), limit](c10d::TCPStore& store) {
    return wait_for_keys(store, keys, limit);
  });
}

void StoreClient::remove(const std::string& key) {
  call([=](c10d::TCPStore& store) { store.deleteKey(key); });
}

// The first part begins with the length of the whole, and is written last.
void StoreClient::set_large(const std::string& key, const std::string& value) {
  uint64_t length = value.size();
  std::string first(reinterpret_cast<const char*>(&length), sizeof length);
  for (size_t part = 1; part * kPartBytes < value.size(); ++part)
    set(part_key(key, part), value.substr(part * kPartBytes, kPartBytes));
  set(key, first + value.substr(0, kPartBytes));
}

std::string StoreClient::finish_large(const std::string& key, std::string first) {
  uint64_t length = 0;
  check(first.size() >= sizeof length, "the value of ", key, " in the rendezvous store is cut off");
  std::memcpy(&length, first.data(), sizeof length);
  std::string value = first.substr(sizeof length);
  for (size_t part = 1; value.size() < length; ++part) value += get(part_key(key, part));
  return value;
}

std::string StoreClient::get_large(const std::string& key) { return finish_large(key, get(key)); }

Texts StoreClient::get_large(std::span<const std::string> keys) {
  Texts values = get(keys);
  for (size_t i = 0; i < keys.size(); ++i) values[i] = finish_large(keys[i], std::move(values[i]));
  return values;
}

void StoreClient::remove_large(const std::string& key, size_t value_bytes) {
  remove(key);
  for (size_t part = 1; part * kPartBytes < value_bytes; ++part) remove(part_key(key, part));
}

}  // namespace neox
