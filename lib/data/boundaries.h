// Where documents end inside a sample: with each end-of-document token, which belongs to the
// document that it ends, as in Megatron-LM (core/datasets/gpt_dataset.py,
// _get_ltor_masks_and_position_ids). Padding goes on behind the last token and ends no document,
// though the token that it is filled with may: attention would be computed for each alone. Pure
// functions; any thread may call them.
#pragma once
#include <cstdint>
#include <span>

namespace neox {

// The number of each token's document in the sample: 0 0 0 1 1 2. Numbers beyond the tokens are
// those of padding.
void number_documents(std::span<const int64_t> tokens, int64_t end_of_document,
                      std::span<int64_t> documents);

// The place of each token in its document: 0 1 2 0 1 0. With padding as above.
void restart_positions(std::span<const int64_t> tokens, int64_t end_of_document,
                       std::span<int64_t> positions);

}  // namespace neox
