// Where documents end inside a sample: with each end-of-document token, which belongs to the
// document that it ends, as in Megatron-LM (core/datasets/gpt_dataset.py,
// _get_ltor_masks_and_position_ids). Pure functions; any thread may call them.
#pragma once
#include <cstdint>
#include <span>

namespace neox {

// The number of each token's document in the sample: 0 0 0 1 1 2. Both have the same size.
void number_documents(std::span<const int64_t> tokens, int64_t end_of_document,
                      std::span<int64_t> documents);

// The place of each token in its document: 0 1 2 0 1 0. Both have the same size.
void restart_positions(std::span<const int64_t> tokens, int64_t end_of_document,
                       std::span<int64_t> positions);

}  // namespace neox
