#include "rendezvous/store_control.h"

#include <algorithm>

#include "rendezvous/find.h"
#include "rendezvous/names.h"
#include "rendezvous/packed.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlice{500};
constexpr seconds kNaming{30};  // after the deadline, for rank 0 to say who did not come
// The result is pack()ed texts behind this, or a reason why there is none.
constexpr char kWhole = '+', kNone = '-';

}  // namespace

// Each rank writes its text; rank 0 reads them all, and writes the result, which all read.
struct StoreControl::Round {
  std::string key;
  int size;
  seconds deadline;
  Readers readers;

  std::string text(int rank) const { return concat(key, "/", rank); }
  std::string result() const { return key + "/all"; }
  std::string late() const { return key + "/late"; }  // the deadline has passed on a rank
  std::vector<std::string> texts() const {
    std::vector<std::string> keys;
    for (int rank = 1; rank < size; ++rank) keys.push_back(text(rank));
    return keys;
  }
};

StoreControl::StoreControl(const ProcessInfo& process, const std::vector<std::string>& hosts,
                           Heart& heart, StoreClient& client,
                           std::unique_ptr<StoreClient> of_channel)
    : process_(process),
      hosts_(hosts),
      heart_(heart),
      of_channel_(std::move(of_channel)),
      client_(client),
      keys_(process.life),
      size_(process.size) {
  client_.on_wait([this](milliseconds) { heart_.check_goes_on(); });
}

StoreControl::StoreControl(const StoreControl& parent, std::string name, int size,
                           std::unique_ptr<StoreClient> client)
    : process_(parent.process_),
      hosts_(parent.hosts_),
      heart_(parent.heart_),
      own_client_(std::move(client)),
      client_(*own_client_),
      keys_(process_.life),
      name_(std::move(name)),
      size_(size) {
  client_.on_wait([this](milliseconds) { heart_.check_goes_on(); });
}

std::unique_ptr<Control> StoreControl::channel(const std::string& name, int size) {
  std::unique_ptr<StoreClient> client = std::move(of_channel_);
  if (!client) {
    Finder finder(client_, keys_.here());
    client = finder.find(steady_clock::now() + kConnectAgain, [this] { heart_.check_goes_on(); });
    check_io(client != nullptr, "no connection for ", name, " to the store of the job within ",
             kConnectAgain.count(), " s: ", finder.problems());
  }
  return std::unique_ptr<Control>(new StoreControl(*this, name, size, std::move(client)));
}

std::vector<std::string> StoreControl::gather(const std::string& mine, seconds deadline) {
  return gather_for(Readers::kAll, mine, deadline);
}

std::vector<std::string> StoreControl::gather_to_first(const std::string& mine, seconds deadline) {
  return gather_for(Readers::kFirst, mine, deadline);
}

std::vector<std::string> StoreControl::gather_for(Readers readers, const std::string& mine,
                                                  seconds deadline) {
  Round round{key(sequence_++), size_, deadline, readers};
  std::string result;
  try {
    result = process_.rank == 0 ? collect(round, mine) : contribute(round, mine);
  } catch (const StoreLost&) { heart_.store_is_lost(); }
  if (result.front() == kNone) fail(Exit::kPeerLost, result.substr(1));
  return unpack(std::string_view(result).substr(1));
}

std::string StoreControl::collect(const Round& round, const std::string& mine) {
  std::vector<std::string> keys = round.texts();
  std::vector<int> missing;
  if (!wait_for(keys, round, round.deadline)) missing = find_missing(round);
  std::string result;
  if (missing.empty()) {
    std::vector<std::string> texts = client_.get_large(keys);
    texts.insert(texts.begin(), mine);
    result = kWhole + pack(texts);
  } else {
    result = kNone + did_not_come(missing, round);
  }
  // All that have come to this round have left the one before.
  if (last_bytes_ > 0 && result.front() == kWhole)
    client_.remove_large(Round{key(sequence_ - 2)}.result(), last_bytes_);
  bool withheld = round.readers == Readers::kFirst && result.front() == kWhole;
  std::string told = withheld ? kWhole + pack(std::vector<std::string>(keys.size() + 1)) : result;
  client_.set_large(round.result(), told);
  last_bytes_ = told.size();
  return result;
}

// Who is missing is found out by rank 0 alone: each rank would ask for all the others. A rank 0
// that does not say it, though it is told that the deadline has passed, has not come itself.
std::string StoreControl::contribute(const Round& round, const std::string& mine) {
  const std::string key = round.text(process_.rank), all = round.result();
  client_.set_large(key, mine);
  if (!wait_for({&all, 1}, round, round.deadline)) {
    client_.set(round.late(), "");
    const int zero = 0;
    if (!wait_for({&all, 1}, round, kNaming)) return kNone + did_not_come({&zero, 1}, round);
  }
  std::string result = client_.get_large(all);
  client_.remove_large(key, mine.size());
  return result;
}

// Slices are counted, and not the time: a stop of this process (SIGSTOP) is no rank's delay.
bool StoreControl::wait_for(std::span<const std::string> keys, const Round& round,
                            milliseconds limit) {
  for (milliseconds left = limit;; left -= kSlice) {
    heart_.check_goes_on();
    if (client_.wait(keys, std::clamp(left, milliseconds(1), kSlice))) return true;
    if (left <= kSlice || (process_.rank == 0 && client_.has(round.late()))) return false;
  }
}

std::vector<int> StoreControl::find_missing(const Round& round) {
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank)
    if (!client_.has(round.text(rank))) missing.push_back(rank);
  return missing;
}

std::string StoreControl::did_not_come(std::span<const int> missing, const Round& round) const {
  return concat(name_ranks(missing, hosts_), " did not come within ", round.deadline.count(),
                " s to where the ranks decide together");
}

}  // namespace neox
