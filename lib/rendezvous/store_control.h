// Control over the store of a job.
#pragma once
#include <string>
#include <vector>

#include "rendezvous/heart.h"

namespace neox {

class StoreControl : public Control {
 public:
  StoreControl(const ProcessInfo& process, const std::vector<std::string>& hosts, Heart& heart,
               StoreClient& client, std::unique_ptr<StoreClient> of_channel);
  using Control::gather;
  int rank() const override { return process_.rank; }
  int size() const override { return size_; }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds deadline) override;
  std::vector<std::string> gather_to_first(const std::string& mine,
                                           std::chrono::seconds deadline) override;
  // Over a connection of its own.
  std::unique_ptr<Control> channel(const std::string& name, int size) override;

 private:
  struct Round;
  enum class Readers { kAll, kFirst };  // of a round's texts
  StoreControl(const StoreControl& parent, std::string name, int size,
               std::unique_ptr<StoreClient> client);
  std::string key(int64_t sequence) const { return keys_.gather(name_, sequence); }
  std::vector<std::string> gather_for(Readers readers, const std::string& mine,
                                      std::chrono::seconds deadline);
  std::string collect(const Round& round, const std::string& mine);
  std::string contribute(const Round& round, const std::string& mine);
  bool wait_for(std::span<const std::string> keys, const Round& round,
                std::chrono::milliseconds limit);
  std::vector<int> find_missing(const Round& round);
  std::string did_not_come(std::span<const int> missing, const Round& round) const;

  const ProcessInfo& process_;
  const std::vector<std::string>& hosts_;
  Heart& heart_;
  std::unique_ptr<StoreClient> own_client_;  // of a channel
  std::unique_ptr<StoreClient> of_channel_;  // of the first one, until it is asked for
  StoreClient& client_;
  const Keys keys_;
  const std::string name_;  // of the channel; empty: the job's
  const int size_;
  int64_t sequence_ = 0;
  size_t last_bytes_ = 0;  // of the last round's result, which rank 0 removes
};

}  // namespace neox
