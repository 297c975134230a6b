// Looks for the store of a job behind a row of ports, where other programs may listen too.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/store.h"

namespace neox {

// For how long further connections to a store that is known are tried: on a busy node, or from many
// ranks at once, one attempt may fail.
inline constexpr std::chrono::seconds kConnectAgain{60};

class Finder {
 public:
  // The store that has this key is the one.
  Finder(const std::vector<Address>& addresses, const std::string& key);
  // For further connections to the store of `known`: knocks only where an attempt has failed.
  Finder(const StoreClient& known, const std::string& key);
  // Tries each address once, without waiting for one that accepts and says nothing. Null where the
  // store is not there yet.
  std::unique_ptr<StoreClient> look();
  // Looks until it is there, with poll() after each look. Null where it is not by then.
  std::unique_ptr<StoreClient> find(std::chrono::steady_clock::time_point until,
                                    const std::function<void()>& poll);
  // What stood in the way last, such as "node1:29500: Connection refused".
  std::string problems() const;

 private:
  struct Door {
    Address address;
    StoreClient::Knock knock = StoreClient::Knock::kBefore;
    std::unique_ptr<StoreClient> attempt;
    std::chrono::steady_clock::time_point next_try;
    std::string problem;
  };
  std::vector<Door> doors_;
  std::string key_;
};

}  // namespace neox
