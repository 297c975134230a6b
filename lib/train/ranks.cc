#include "train/ranks.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "base/error.h"
#include "launch/process_info.h"
#include "rendezvous/names.h"

namespace neox {
namespace {

// Rank 0's text of the gather that ends the idling. No other text begins with a zero byte.
const std::string kRelease("\0release", 8);
constexpr std::chrono::hours kForever(24 * 365);

// Whether the ranks of each node follow one another.
bool in_blocks(const std::vector<std::string>& hosts) {
  size_t blocks = 1;
  for (size_t rank = 1; rank < hosts.size(); ++rank) blocks += hosts[rank] != hosts[rank - 1];
  return blocks == std::set<std::string>(hosts.begin(), hosts.end()).size();
}

}  // namespace

Layout fitting_layout(const LayoutConfig& c, int ranks) {
  auto pipe = static_cast<int>(c.pipe), tensor = static_cast<int>(c.tensor);
  int model = pipe * tensor, shard = c.zero_stage == 0 ? 1 : static_cast<int>(c.shard);
  int unit = model * std::max(shard, 1);
  check_usage(ranks >= unit, "pipe_parallel_size ", pipe, " x model_parallel_size ", tensor,
              shard > 1 ? concat(" x mics_shard_size ", shard) : "", " needs ", unit,
              " ranks, the job has ", ranks, "; on one machine start it with --spawn ", unit,
              ", under Slurm with --ntasks=", unit);
  int data = ranks / model;
  if (c.zero_stage > 0 && shard == 0) shard = data;
  return {.pp = pipe, .replicate = data / shard, .shard = shard, .tp = tensor};
}

std::string spread_groups(const Layout& layout, const std::vector<std::string>& hosts) {
  auto tp = static_cast<size_t>(layout.tp), ranks = static_cast<size_t>(layout.size());
  for (size_t first = 0; first < ranks; first += tp) {
    std::span group(hosts.begin() + static_cast<std::ptrdiff_t>(first), tp);
    if (std::ranges::all_of(group, [&](const auto& host) { return host == group[0]; })) continue;
    std::vector<int> those(tp);
    std::iota(those.begin(), those.end(), static_cast<int>(first));
    return concat("model_parallel_size ", layout.tp, ": ", name_ranks(those, hosts),
                  " share each layer, which then waits for the network between nodes; ",
                  in_blocks(hosts) ? concat("a --ntasks-per-node that ", layout.tp, " divides")
                                   : "--distribution=block",
                  " keeps them on one node");
  }
  return {};
}

void check_read_alike(Control& control, const std::string& what, const std::string& fingerprint) {
  std::vector<std::string> hosts, read;
  for (const std::string& text : control.gather(concat(host_name(), ' ', fingerprint))) {
    size_t space = text.find(' ');
    hosts.push_back(text.substr(0, space));
    read.push_back(text.substr(space + 1));
  }
  std::vector<int> others;
  for (size_t rank = 0; rank < read.size(); ++rank)
    if (read[rank] != read[0]) others.push_back(static_cast<int>(rank));
  check_usage(others.empty(), what, " that ", others.empty() ? "" : name_ranks(others, hosts),
              others.size() == 1 ? " has" : " have", " read is not that of rank 0 on ", hosts[0],
              ", under the same path: copy it anew there, or put it where all nodes see the same "
              "files");
}

std::vector<std::string> TrainingControl::gather(const std::string& mine,
                                                 std::chrono::seconds deadline) {
  auto all = job_.gather(mine, deadline);
  all.resize(static_cast<size_t>(size_));
  return all;
}

std::vector<std::string> TrainingControl::gather_to_first(const std::string& mine,
                                                          std::chrono::seconds deadline) {
  auto all = job_.gather_to_first(mine, deadline);
  all.resize(static_cast<size_t>(size_));
  return all;
}

void TrainingControl::release() {
  if (size_ < job_.size()) job_.gather(kRelease);
}

void idle(Control& job) {
  while (job.gather("", std::chrono::seconds(kForever))[0] != kRelease) {}
}

}  // namespace neox
