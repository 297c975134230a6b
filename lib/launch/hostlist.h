// Slurm's compressed lists, written out. Containers have no scontrol that could do it. Order and
// duplicates are kept. Malformed lists, and ranges of more than 65536 entries, throw (64).
#pragma once
#include <string>
#include <vector>

namespace neox {

// "p5-st-p5-[1,09-11],login" is p5-st-p5-1, -09, -10, -11, login. A range has the width of its
// lower bound; of several brackets the leftmost is slowest (src/common/hostlist.c of Slurm).
std::vector<std::string> expand_hostlist(const std::string& list);

// "8(x3),4" is 8 8 8 4 (src/common/env.c of Slurm).
std::vector<int> expand_tasks_per_node(const std::string& list);

}  // namespace neox
