// How long a text is, in tokens, characters and bytes: by that a loss per token becomes one that
// models with other tokenizers can be compared by.
#pragma once
#include <cstdint>
#include <vector>

#include "model/gpt_neox.h"
#include "tokenizer/tokenizer.h"

namespace neox {

struct TextSize {
  double tokens = 0;
  double characters = 0;  // code points
  double bytes = 0;       // of UTF-8

  // Of the rows of a batch of which anything weighs: each up to the last token that does, T + 1
  // where all do, decoded by itself, as GPT-NeoX counts them (CharCounter, megatron/utils.py; it
  // counts padding too).
  void add(const Batch& batch, const Tokenizer& tokenizer);

  // loss: mean of a token, in nats. exp(loss * tokens / characters), GPT-NeoX's
  // lm_loss_char_lvl_ppl.
  double perplexity(double loss) const;
  // Gao et al., The Pile (2020), section 3.1.
  double bits_per_byte(double loss) const;
};

}  // namespace neox
