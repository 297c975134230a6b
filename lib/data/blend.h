// Samples of several datasets in turn, by weight: how many samples of each are built, and which
// dataset gives which sample of the blend. Bit for bit GPT-NeoX's (data_utils.py,
// blendable_dataset.py), Megatron's until 2023, and Megatron-Core's (blended_dataset.py); all in
// double, each operation rounded by itself. Pure functions.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"
#include "data/numpy_random.h"

namespace neox {

// Instead of a number of samples: those of one epoch, whatever that gives.
inline constexpr int64_t kOneEpoch = -1;

// numpy.sum of doubles: its pairwise sums, which differ from left to right from 8 numbers on.
double numpy_sum(std::span<const double> values);

// GPT-NeoX's weight_by_num_documents, of the numbers of documents of each dataset.
std::vector<double> weights_by_documents(std::span<const int64_t> documents, double alpha);

struct BlendPlan {
  std::vector<double> weights;   // normalised once; empty: by the samples that each dataset has
  std::vector<int64_t> samples;  // asked of each dataset
  int64_t size = 0;  // of the blend; in GPT-NeoX's order, and without weights, only then known
};

// `samples` are asked of `datasets` with these weights (none: all alike; in Megatron-Core's order:
// by the samples that they have).
BlendPlan plan_blend(DataOrder order, const std::vector<double>& weights, int64_t datasets,
                     int64_t samples);

// What sample i of a blend is: sample[i] of dataset[i].
struct BlendIndex {
  std::vector<uint16_t> dataset;
  std::vector<uint32_t> sample;
};

// At each step the dataset that is furthest behind its weight (normalised here) gives a sample.
BlendIndex build_blend(std::span<const double> weights, int64_t size, const Poll& poll = {});

}  // namespace neox
