#include "jinja/seen.h"

#include <algorithm>
#include <functional>

namespace neox::jinja {
namespace {

// The same of values that are equal(), most often another of others. A bounded part of a list
// counts: what lies in it may lie there many times, and be itself.
size_t hash_of(const Value& value, int level = 0) {
  constexpr int kLevels = 3;
  constexpr size_t kItems = 8, kFactor = 1'000'003;
  Budget::step();
  if (value.is_number()) return std::hash<double>()(number_of(value));  // 1, 1.0 and true are equal
  if (value.text()) {
    Budget::text(value.text()->size());
    return std::hash<std::string>()(*value.text());
  }
  size_t hash = value.data.index();
  if (value.map()) return hash * kFactor + value.map()->items.size();
  if (!value.list()) return hash;
  const List& list = *value.list();
  hash = hash * kFactor + list.size();
  if (level < kLevels)
    for (size_t i = 0; i < std::min(list.size(), kItems); ++i)
      hash = hash * kFactor + hash_of(list[i], level + 1);
  return hash;
}

}  // namespace

bool Seen::add(const Value& value) {
  size_t hash = hash_of(value);
  auto [from, to] = values_.equal_range(hash);
  if (std::any_of(from, to, [&](const auto& other) { return equal(value, other.second); }))
    return false;
  room_.grow(sizeof(decltype(values_)::value_type) + 2 * sizeof(void*));  // a node, and its place
  values_.emplace(hash, value);
  return true;
}

}  // namespace neox::jinja
