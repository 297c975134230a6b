#include "rendezvous/names.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace neox {

std::string rank_list(std::span<const int> ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i ? concat(ranks[i]) : concat(ranks[i], "-", ranks[last]));
    i = last + 1;
  }
  return join(parts, ", ");
}

std::string name_ranks(std::span<const int> ranks, std::span<const std::string> hosts) {
  std::vector<std::pair<std::string, std::vector<int>>> by_host;
  for (int rank : ranks) {
    std::string host = hosts.empty() ? "" : hosts[static_cast<size_t>(rank)];
    auto same = [&](const auto& entry) { return entry.first == host; };
    auto found = std::find_if(by_host.begin(), by_host.end(), same);
    if (found == by_host.end()) found = by_host.insert(found, {host, {}});
    found->second.push_back(rank);
  }
  std::vector<std::string> parts;
  for (const auto& [host, here] : by_host)
    parts.push_back(rank_list(here) + (host.empty() ? "" : " on " + host));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(parts, ", ");
}

std::string name_of(const ProcessInfo& process) {
  return concat("rank ", process.rank, " on ", process.host);
}

std::vector<std::string> expected_hosts(const ProcessInfo& process,
                                        std::span<const std::string> arrived) {
  const size_t size = arrived.size();
  if (process.local_size == process.size) return std::vector<std::string>(size, process.host);
  std::vector<std::string> hosts;
  for (size_t node = 0; node < process.tasks.size(); ++node)
    hosts.insert(hosts.end(), static_cast<size_t>(process.tasks[node]), process.nodes[node]);
  if (hosts.size() != size) return {};
  for (size_t rank = 0; rank < size; ++rank)
    if (!arrived[rank].empty() && arrived[rank] != hosts[rank]) return {};
  return hosts;
}

}  // namespace neox
