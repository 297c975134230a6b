// A dataset cut into train, valid and test by a text such as "969, 30, 1". Pure functions.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "config/config.h"

namespace neox {

// Sequences first .. end - 1 of a dataset.
struct SequenceRange {
  int64_t first = 0, end = 0;
  int64_t size() const { return end - first; }
};

// The shares of train, valid and test in `size` sequences, rounded half to even. GPT-NeoX and
// Megatron until 2023 round each share and move all boundaries by the total error; Megatron-Core
// rounds the boundaries. Throws Error (64) naming what cannot be read.
std::array<SequenceRange, 3> split_sequences(const std::string& split, int64_t size,
                                             DataOrder order = DataOrder::kNeox);

}  // namespace neox
