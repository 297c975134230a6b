#include "rendezvous/find.h"

#include <thread>

#include "base/text.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{20}, kPause{200};

}  // namespace

Finder::Finder(const std::vector<Address>& addresses, const std::string& key) : key_(key) {
  for (const Address& address : addresses) doors_.push_back({.address = address});
}

Finder::Finder(const StoreClient& known, const std::string& key) : key_(key) {
  doors_.push_back({.address = known.address(), .knock = StoreClient::Knock::kNot});
}

std::unique_ptr<StoreClient> Finder::look() {
  for (Door& door : doors_) {
    if (!door.attempt && steady_clock::now() < door.next_try) continue;
    if (!door.attempt) door.attempt = std::make_unique<StoreClient>(door.address, key_, door.knock);
    switch (door.attempt->wait_connected(kLook)) {
      case StoreClient::State::kConnected:
        return std::move(door.attempt);
      case StoreClient::State::kConnecting:
        door.problem = to_string(door.address) + ": no answer";
        break;
      case StoreClient::State::kFailed:
        door.problem = door.attempt->problem();
        door.attempt.reset();
        door.knock = StoreClient::Knock::kBefore;  // for the reason, which c10d does not tell
        door.next_try = steady_clock::now() + kPause;
    }
  }
  return nullptr;
}

std::unique_ptr<StoreClient> Finder::find(steady_clock::time_point until,
                                          const std::function<void()>& poll) {
  for (;; std::this_thread::sleep_for(kLook)) {
    if (auto client = look()) return client;
    poll();
    if (steady_clock::now() > until) return nullptr;
  }
}

std::string Finder::problems() const {
  std::vector<std::string> problems;
  for (const Door& door : doors_)
    if (!door.problem.empty() && !door.problem.ends_with("Connection refused"))
      problems.push_back(door.problem);
  return problems.empty() ? doors_.front().problem : join(problems, "; ");
}

}  // namespace neox
