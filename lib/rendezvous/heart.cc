#include "rendezvous/heart.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "rendezvous/names.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kSignalPoll{100};
constexpr seconds kTell{2};      // to write why this rank has failed
constexpr int kUnwind = 12;      // times the grace: for a rank that has failed to end by itself
constexpr seconds kGoodbye{10};  // rank 0 waits so long for slower ranks to end
const std::string kBye = "bye";

// Why a rank is lost, and as what the others end: in the store "76 rank 3 is lost ...".
struct Loss {
  Exit exit;
  std::string reason;
};

std::string to_text(const Loss& loss) {
  return concat(static_cast<int>(loss.exit), " ", loss.reason);
}

Loss loss_of(const std::string& text) {
  size_t space = text.find(' ');
  return {static_cast<Exit>(std::stoi(text)), text.substr(space + 1)};
}

}  // namespace

Heart::Heart(const ProcessInfo& process, std::vector<std::string> hosts, Times times,
             std::unique_ptr<StoreClient> client)
    : process_(process),
      hosts_(std::move(hosts)),
      times_(times),
      keys_(process.life),
      client_(std::move(client)),
      last_look_(steady_clock::now()),
      seen_(static_cast<size_t>(process.size)) {
  client_->on_wait([this](milliseconds waited) {
    std::lock_guard lock(mutex_);
    if (signal_ && *signal_ == SIGTERM) hurry_ = true;
    if (waited > patience()) throw StoreLost("no answer");
  });
  for (Seen& seen : seen_) seen.since = last_look_;
  thread_ = std::thread([this] { run(); });
}

Heart::~Heart() {
  std::unique_lock lock(mutex_);
  if (lost_thread_.joinable()) {
    std::thread lost = std::move(lost_thread_);
    lock.unlock();
    lost.join();  // thread_ still ends the process where this takes too long
    lock.lock();
  }
  closing_ = true;
  changed_.notify_all();
  lock.unlock();
  thread_.join();
}

void Heart::watch(std::function<void(const std::string&)> lost, const std::atomic<int>& signal,
                  seconds grace) {
  std::lock_guard lock(mutex_);
  lost_ = std::move(lost);
  signal_ = &signal;
  grace_ = grace;
  if (!reason_.empty()) start_lost();
}

void Heart::failed(const std::string& reason, Exit exit) noexcept try {
  std::unique_lock lock(mutex_);
  if (!reason_.empty() || !failure_.empty()) return;
  failure_ = to_text({exit, concat(name_of(process_), " failed: ", reason)});
  if (lost_) end_by_ = steady_clock::now() + kUnwind * grace_;
  changed_.notify_all();
  changed_.wait_for(lock, kTell, [this] { return failure_told_ || !reason_.empty(); });
} catch (const std::exception&) {}  // out of memory: the others will miss this rank

void Heart::check_all_alive() const {
  std::lock_guard lock(mutex_);
  throw_lost();
}

void Heart::check_goes_on() const {
  std::lock_guard lock(mutex_);
  throw_lost();
  if (failure_.empty()) return;
  Loss own = loss_of(failure_);
  fail(own.exit, own.reason);
}

void Heart::throw_lost() const {
  if (!reason_.empty()) fail(exit_, reason_);
}

void Heart::store_is_lost() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, 2 * times_.beat + kSignalPoll, [this] { return !reason_.empty(); });
  fail(exit_, reason_.empty() ? rank_zero() : reason_);
}

std::string Heart::rank_zero() const {
  return concat("rank 0 on ", hosts_[0], " is lost: the rendezvous store does not answer");
}

void Heart::run() {
  try {
    live();
  } catch (const std::exception&) { lose(rank_zero()); }
  await_end();
  try {
    leave();
  } catch (const std::exception&) {}  // nobody is there to say goodbye to
}

void Heart::live() {
  for (Next next = beat(); next != Next::kLeave; next = beat()) {
    if (next == Next::kLost && process_.rank != 0) client_->set(keys_.beat(process_.rank), kBye);
    if (next != Next::kGoOn) return;
    rest();
  }
}

Heart::Next Heart::beat() {
  client_->set(keys_.beat(process_.rank), next_beat());
  const std::string names[] = {keys_.lost(), keys_.ask()};
  std::vector<std::string> values = client_->get(names);
  if (!values[0].empty()) return lose_as(values[0]), Next::kLost;
  std::unique_lock lock(mutex_);
  if (!failure_.empty()) {
    std::string failure = failure_;
    lock.unlock();
    return publish(failure, Next::kFailed);
  }
  bool asked = !values[1].empty(), signalled = signal_ && *signal_ == SIGTERM;
  bool leaves = closing_;
  lock.unlock();
  if (signalled && !asked) client_->set(keys_.ask(), "1");
  if (signalled || asked) hurry_ = true;
  std::string silent = process_.rank == 0 ? find_silent() : "";
  if (!silent.empty()) return publish(silent, Next::kLost);
  return leaves ? Next::kLeave : Next::kGoOn;
}

// The first reason is the one for all.
Heart::Next Heart::publish(const std::string& reason, Next next) {
  std::string first = client_->compare_set(keys_.lost(), "", reason);
  if (next == Next::kLost || first != reason) return lose_as(first), Next::kLost;
  std::lock_guard lock(mutex_);
  failure_told_ = true;
  changed_.notify_all();
  return next;
}

void Heart::rest() {
  auto until = steady_clock::now() + times_.beat;
  std::unique_lock lock(mutex_);
  while (steady_clock::now() < until && !closing_ && failure_.empty()) {
    if (!hurry_ && signal_ && *signal_ == SIGTERM) return;
    changed_.wait_until(lock, std::min(until, steady_clock::now() + kSignalPoll));
  }
}

// "17 what this rank tells"
std::string Heart::next_beat() {
  std::lock_guard lock(mutex_);
  return concat(++count_, ' ', text_);
}

std::vector<std::string> Heart::all_beats() {
  std::vector<std::string> keys;
  for (int rank = 0; rank < process_.size; ++rank) keys.push_back(keys_.beat(rank));
  return client_->get(keys);
}

void Heart::tell(const std::string& text) {
  std::lock_guard lock(mutex_);
  text_ = text;
}

std::vector<std::string> Heart::told() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> texts = {text_};
  for (size_t rank = 1; rank < seen_.size(); ++rank) {
    const std::string& beat = seen_[rank].beat;
    size_t space = beat.find(' ');
    texts.push_back(space == beat.npos ? "" : beat.substr(space + 1));
  }
  return texts;
}

// What is said of the ranks that have not beaten for too long; empty: there are none.
std::string Heart::find_silent() {
  std::vector<std::string> beats = all_beats();
  std::lock_guard lock(mutex_);
  auto now = steady_clock::now();
  bool slept = now - last_look_ > patience() / 2;  // then the others' silence is not theirs
  last_look_ = now;
  std::vector<int> silent;
  auto longest = steady_clock::duration::zero();
  // Ranks of one node die together, and are named together.
  auto limit = patience() - std::min(2 * times_.beat, patience() / 4);
  for (int rank = 1; rank < process_.size; ++rank) {
    size_t r = static_cast<size_t>(rank);
    if (slept || seen_[r].beat != beats[r]) seen_[r] = {beats[r], now};
    if (beats[r] == kBye || now - seen_[r].since <= limit) continue;
    silent.push_back(rank);
    longest = std::max(longest, now - seen_[r].since);
  }
  if (longest <= patience()) return "";
  return to_text(
      {Exit::kPeerLost, concat(name_ranks(silent, hosts_), silent.size() == 1 ? " is" : " are",
                               " lost: no sign of life for ",
                               std::chrono::duration_cast<seconds>(longest).count(), " s")});
}

void Heart::lose_as(const std::string& text) {
  Loss loss = loss_of(text);
  lose(loss.reason, loss.exit);
}

void Heart::lose(const std::string& reason, Exit exit) {
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) return;
  reason_ = reason;
  exit_ = exit;
  changed_.notify_all();
  if (lost_) start_lost();
}

// On a thread of its own, since it may hang, and the process is to end then.
void Heart::start_lost() {
  if (closing_) return;
  end_by_ = std::min(end_by_, steady_clock::now() + grace_);
  lost_thread_ = std::thread([lost = lost_, reason = reason_] {
    try {
      lost(reason);
    } catch (const std::exception&) {}  // the main thread tells; this one has nobody to tell
  });
}

void Heart::await_end() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_until(lock, std::min(end_by_, steady_clock::now() + seconds(1)));
    if (closing_ || steady_clock::now() < end_by_) continue;
    Loss loss = reason_.empty() ? loss_of(failure_) : Loss{exit_, reason_};
    std::fputs(concat(name_of(process_), ": ", loss.reason, "\n").c_str(), stderr);
    ::_exit(static_cast<int>(loss.exit));
  }
}

void Heart::leave() {
  if (process_.rank != 0) {
    client_->set(keys_.beat(process_.rank), kBye);
    client_->has(keys_.lost());  // its answer says that the goodbye has arrived
    return;
  }
  bool well;
  {
    std::lock_guard lock(mutex_);
    well = reason_.empty() && failure_.empty();
  }
  // Where a rank is lost, the others need the store until they know.
  auto until =
      steady_clock::now() + (well ? milliseconds(kGoodbye) : 4 * times_.beat + kSignalPoll);
  while (steady_clock::now() < until) {
    std::vector<std::string> beats = all_beats();
    if (std::count(beats.begin() + 1, beats.end(), kBye) == process_.size - 1) return;
    if (std::string silent = well ? find_silent() : ""; !silent.empty())
      client_->compare_set(keys_.lost(), "", silent);
    std::this_thread::sleep_for(std::min(times_.beat, kSignalPoll));
  }
}

}  // namespace neox
