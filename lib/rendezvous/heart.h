// Tells whether all ranks of a job are alive: each one writes a count to its key of the store at
// each heartbeat, and rank 0 watches that the counts move. Times are of the own steady clock only.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "rendezvous/meet.h"

namespace neox {

class Heart {
 public:
  struct Times {
    std::chrono::milliseconds beat, silence, answer;  // as in JoinOptions
  };

  // Beats from now on, over a connection of its own.
  Heart(const ProcessInfo& process, std::vector<std::string> hosts, Times times,
        std::unique_ptr<StoreClient> client);
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  // Says goodbye. Rank 0 waits until all have.
  ~Heart();

  // See Job.
  void watch(std::function<void(const std::string& reason)> lost, const std::atomic<int>& signal,
             std::chrono::seconds grace);
  void failed(const std::string& reason, Exit exit) noexcept;
  void tell(const std::string& text);
  std::vector<std::string> told() const;

  // Any thread. Throws the reason where a rank is lost: with 76, or as what the failed rank ended.
  void check_all_alive() const;
  // The same, also where this rank has said that it failed: for who waits for others, which will
  // not come then.
  void check_goes_on() const;
  // For who has found the store gone: throws what is known of it, at least that rank 0 is lost.
  [[noreturn]] void store_is_lost();

 private:
  enum class Next { kGoOn, kLost, kFailed, kLeave };
  struct Seen {  // of another rank, by rank 0
    std::string beat;
    std::chrono::steady_clock::time_point since;
  };

  void run();
  void live();
  Next beat();
  Next publish(const std::string& reason, Next next);
  void rest();
  std::string find_silent();
  void lose_as(const std::string& text);  // of the store
  void lose(const std::string& reason, Exit exit = Exit::kPeerLost);
  void await_end();
  void leave();
  std::string next_beat();
  std::vector<std::string> all_beats();
  std::chrono::milliseconds patience() const { return hurry_ ? times_.answer : times_.silence; }
  std::string rank_zero() const;
  void start_lost();
  void throw_lost() const;  // under the mutex

  const ProcessInfo process_;
  const std::vector<std::string> hosts_;
  const Times times_;
  const Keys keys_;
  std::unique_ptr<StoreClient> client_;
  std::atomic<bool> hurry_ = false;  // SIGTERM has come to some rank
  int64_t count_ = 0;                // of heartbeats
  std::chrono::steady_clock::time_point last_look_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string reason_;           // why a rank is lost
  Exit exit_ = Exit::kPeerLost;  // as what this process ends then
  std::string failure_;          // of this rank, as in the store
  std::string text_;             // of this rank, behind its count
  std::vector<Seen> seen_;
  bool failure_told_ = false, closing_ = false;
  const std::atomic<int>* signal_ = nullptr;
  std::function<void(const std::string&)> lost_;
  std::chrono::seconds grace_{0};
  std::chrono::steady_clock::time_point end_by_ = std::chrono::steady_clock::time_point::max();
  std::thread lost_thread_, thread_;
};

}  // namespace neox
