#include "rendezvous/agree.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "rendezvous/names.h"
#include "rendezvous/packed.h"

namespace neox {
namespace {

constexpr size_t kFirstName = 3;

// The ranks that have each value of `name`.
std::map<std::string, std::vector<int>> ranks_by_value(
    const std::string& name, std::span<const std::vector<std::string>> rows) {
  std::map<std::string, std::vector<int>> ranks;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    std::string value = "not given";
    for (size_t i = kFirstName; i + 1 < rows[rank].size(); i += 2)
      if (rows[rank][i] == name) value = rows[rank][i + 1];
    ranks[value].push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

std::string taken_twice(int rank, const std::string& first_row, const std::string& second_row) {
  std::vector<std::string> first = unpack(first_row), second = unpack(second_row);
  return concat("rank ", rank, " is taken by pid ", first.at(2), " on ", first.at(1), " and pid ",
                second.at(2), " on ", second.at(1), "; start each rank once");
}

std::string name_differences(std::span<const std::string> rows) {
  std::vector<std::vector<std::string>> fields;
  std::vector<std::string> hosts, names, differences;
  for (const std::string& row : rows) {
    fields.push_back(unpack(row));
    hosts.push_back(fields.back().at(1));
    for (size_t i = kFirstName; i < fields.back().size(); i += 2)
      if (std::find(names.begin(), names.end(), fields.back()[i]) == names.end())
        names.push_back(fields.back()[i]);
  }
  for (const std::string& name : names) {
    auto by_value = ranks_by_value(name, fields);
    if (by_value.size() == 1) continue;
    std::vector<std::pair<std::string, std::vector<int>>> most(by_value.begin(), by_value.end());
    std::stable_sort(most.begin(), most.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    std::vector<std::string> parts;
    for (const auto& [value, ranks] : most)
      parts.push_back(concat(value, " on ", name_ranks(ranks, hosts)));
    differences.push_back(concat(name, " is ", join(parts, ", but ")));
  }
  return differences.empty() ? "" : join(differences, "; ") + "; it must be the same on all ranks";
}

}  // namespace neox
