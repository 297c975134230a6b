// A PyTorch file's tree as JSON that tells every kind of value from the others;
// tests/oracle/torchfile.py says the same of what PyTorch reads.
#pragma once
#include <nlohmann/json.hpp>

#include "torchfile/value.h"

namespace neox::torchfile {

nlohmann::json json_of(Value value);

}  // namespace neox::torchfile
