// From one format to another: every tensor accounted for, one at a time, and nothing under the
// final name until all is there.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "convert/formats.h"

namespace neox {

struct ConvertOptions {
  std::string from;  // a format; "": whatever is there
  std::string to;
  fs::path source, target;
  std::optional<at::ScalarType> dtype;  // as in the source
  std::optional<int64_t> rows;          // of embedding and head; as in the source
  int64_t max_shard_bytes = 5'000'000'000;
  int64_t tensor_parallel = 1, pipeline_parallel = 1;
};

// Returns the table of what became of each tensor of the source. Throws and leaves nothing behind
// where something is wrong; the target must not exist.
std::string convert(const ConvertOptions& options);

}  // namespace neox
