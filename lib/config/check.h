// Holds the merged configuration against the table of keys.
#pragma once
#include "config/value.h"

namespace neox {

// Every key is in the table, every value has its type, and nothing is asked for that is not
// supported yet. Throws Error (64) naming place, value, what is allowed, and the cure.
void check_keys(const Value& root);

}  // namespace neox
