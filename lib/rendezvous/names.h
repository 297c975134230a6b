// Ranks in messages.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "launch/process_info.h"

namespace neox {

// {0, 1, 2, 5} is "0-2, 5".
std::string rank_list(std::span<const int> ranks);

// "rank 3 on node1", "ranks 2-3 on node1, 8 on node2"; without " on" where the host is not known.
// hosts: by rank; may be empty.
std::string name_ranks(std::span<const int> ranks, std::span<const std::string> hosts);

// "rank 3 on node1", of this process.
std::string name_of(const ProcessInfo& process);

// Where each rank is to be expected: from node to node, as the launcher tells. Empty where it does
// not, or where the hosts ("": not known) of those that have arrived do not fit that.
std::vector<std::string> expected_hosts(const ProcessInfo& process,
                                        std::span<const std::string> arrived);

}  // namespace neox
