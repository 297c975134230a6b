#include "convert/flat_groups.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace neox {

std::vector<int64_t> without_padding(const std::vector<int64_t>& pieces,
                                     const std::vector<int64_t>& paddings, int64_t total,
                                     const std::string& where) {
  auto sum = [](const std::vector<int64_t>& n) { return std::accumulate(n.begin(), n.end(), 0L); };
  int64_t excess = sum(pieces) - total;
  check_io(0 <= excess && excess <= sum(paddings), where, ": its ", pieces.size(), " pieces hold ",
           sum(pieces), " elements, of them ", sum(paddings),
           " of padding, but the parameters have ", total,
           "; are all files there, and of the same run?");
  std::vector<int64_t> lean = pieces;
  for (size_t i = lean.size(); excess > 0;) {
    int64_t cut = std::min(excess, lean[--i]);
    lean[i] -= cut, excess -= cut;
  }
  return lean;
}

std::vector<PieceRun> runs_of(const std::vector<int64_t>& pieces, int64_t first, int64_t count) {
  std::vector<PieceRun> runs;
  int64_t begin = 0;
  for (size_t i = 0; i < pieces.size(); begin += pieces[i++]) {
    int64_t from = std::max(first, begin), to = std::min(first + count, begin + pieces[i]);
    if (from < to) runs.push_back({i, from - begin, to - from});
  }
  return runs;
}

namespace {

GroupSizes& operator+=(GroupSizes& a, const GroupSizes& b) {
  a[0] += b[0], a[1] += b[1];
  return a;
}

}  // namespace

std::vector<size_t> stage_starts(const std::vector<GroupSizes>& layers,
                                 const std::vector<GroupSizes>& stages, const GroupSizes& tied,
                                 const std::string& where) {
  std::vector<size_t> starts;
  size_t at = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    bool last = s + 1 == stages.size();
    starts.push_back(at);
    GroupSizes found = {};
    if (last && s > 0) found += tied;
    while (at < layers.size() && (last || found != stages[s])) found += layers[at++];
    check_io(found == stages[s], where, ": the optimizer's groups of pipeline stage ", s, " have ",
             stages[s][0], " and ", stages[s][1], " elements, which the layers do not add up to (",
             found[0], " and ", found[1], ")");
  }
  return starts;
}

}  // namespace neox
