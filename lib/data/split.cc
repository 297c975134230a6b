#include "data/split.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

using Shares = std::array<double, 3>;
using Ranges = std::array<SequenceRange, 3>;

double parse_share(const std::string& text, const std::string& split) {
  std::string share(trim(text));
  char* end = nullptr;
  double value = std::strtod(share.c_str(), &end);
  check_usage(!share.empty() && *end == 0 && std::isfinite(value) && value >= 0, "split '", split,
              "': '", share, "' is not a share; give up to three numbers such as 969, 30, 1");
  return value;
}

// Missing ones are 0, more than three have no effect.
Shares parse_shares(const std::string& text) {
  char separator = text.find(',') == std::string::npos ? '/' : ',';
  std::vector<double> shares;
  for (const std::string& part : split(text, separator)) shares.push_back(parse_share(part, text));
  shares.resize(3);
  check_usage(shares[0] + shares[1] + shares[2] > 0, "split '", text,
              "': the shares of train, valid and test are all 0");
  return {shares[0], shares[1], shares[2]};
}

// get_train_valid_test_split_ of GPT-NeoX (megatron/data/data_utils.py) and of Megatron.
Ranges round_shares(const Shares& shares, int64_t size) {
  double sum = shares[0] + shares[1] + shares[2];
  std::array<int64_t, 4> bounds{};
  for (size_t i = 0; i < 3; ++i)
    bounds[i + 1] =
        bounds[i] + std::llrint(shares[i] / sum * static_cast<double>(size));  // half to even
  int64_t error = bounds[3] - size;
  // The error may exceed the first share of a few documents; NeoX fails there.
  for (size_t i = 1; i < 4; ++i) bounds[i] = std::max<int64_t>(0, bounds[i] - error);
  return {{{bounds[0], bounds[1]}, {bounds[1], bounds[2]}, {bounds[2], bounds[3]}}};
}

// convert_split_vector_to_split_matrix of Megatron-Core (blended_megatron_dataset_config.py), and
// the rounding of blended_megatron_dataset_builder.py.
Ranges round_bounds(const Shares& shares, int64_t size) {
  double sum = shares[0] + shares[1] + shares[2], bound = 0;
  Ranges ranges;
  for (size_t i = 0; i < 3; ++i) {
    double next = bound + shares[i] / sum;
    ranges[i] = {std::llrint(bound * static_cast<double>(size)),
                 std::llrint(next * static_cast<double>(size))};
    bound = next;
  }
  return ranges;
}

}  // namespace

Ranges split_sequences(const std::string& split, int64_t size, DataOrder order) {
  Shares shares = parse_shares(split);
  return order == DataOrder::kMegatronCore ? round_bounds(shares, size)
                                           : round_shares(shares, size);
}

}  // namespace neox
