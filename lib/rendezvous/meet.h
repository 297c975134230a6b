// How the processes of a job find each other, and agree that they belong together.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/find.h"
#include "rendezvous/job.h"
#include "rendezvous/store.h"

namespace neox {

// Keys of the store; all begin with the life of the job.
struct Keys {
  explicit Keys(const std::string& life) : prefix(life + "/") {}
  std::string prefix;
  std::string here() const { return prefix + "here"; }  // size, host and pid of rank 0
  std::string row(int rank) const { return concat(prefix, "row/", rank); }
  std::string arrived() const { return prefix + "arrived"; }  // how many
  std::string verdict() const { return prefix + "verdict"; }  // 0 and the hosts, or code and reason
  std::string late() const { return prefix + "late"; }        // a rank's deadline has passed
  std::string read(int rank) const { return concat(prefix, "read/", rank); }  // a bad verdict
  std::string beat(int rank) const { return concat(prefix, "beat/", rank); }  // a count, or "bye"
  std::string lost() const { return prefix + "lost"; }  // the reason; empty: nobody
  std::string ask() const { return prefix + "ask"; }    // "1": SIGTERM has come somewhere
  std::string gather(const std::string& channel, int64_t sequence) const {
    return concat(prefix, "gather/", channel, channel.empty() ? "" : "/", sequence);
  }
};

struct Meeting {
  std::unique_ptr<StoreServer> server;  // rank 0's
  std::unique_ptr<Finder> finder;       // with connections to others that are not yet ended
  std::unique_ptr<StoreClient> client, heart_client;
  std::unique_ptr<StoreClient> channel_client;  // null without JoinOptions::channel
  std::vector<std::string> hosts;               // by rank
};

// Collective; see join().
Meeting meet(const ProcessInfo& process, const JoinOptions& options);

}  // namespace neox
