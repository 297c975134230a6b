// Values that have come before.
#pragma once
#include <unordered_map>

#include "jinja/value.h"

namespace neox::jinja {

class Seen {
 public:
  // False where one came that is equal(). Numbers, texts and tuples of them are found at once, as
  // Python's set finds them; lists of equal beginnings, and maps of as many keys, which a set
  // refuses, are compared one by one. Each comparison is a step.
  bool add(const Value& value);

 private:
  std::unordered_multimap<size_t, Value> values_;  // by what equal ones have in common
  Room room_{0};
};

}  // namespace neox::jinja
