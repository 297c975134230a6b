#include "train/text_size.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace neox {

void TextSize::add(const Batch& batch, const Tokenizer& tokenizer) {
  Tensor tokens = batch.tokens.cpu().contiguous(), last = batch.targets.cpu().contiguous(),
         weights = batch.weights.cpu().contiguous();
  int64_t T = tokens.size(1);
  for (int64_t row = 0; row < tokens.size(0); ++row) {
    const float* weight = weights.const_data_ptr<float>() + row * T;
    int64_t n = T;  // what is behind pads the row
    while (n > 0 && weight[n - 1] == 0) --n;
    if (n == 0) continue;
    const int64_t* first = tokens.const_data_ptr<int64_t>() + row * T;
    std::vector<int32_t> ids(first, first + n);
    ids.push_back(static_cast<int32_t>(last.const_data_ptr<int64_t>()[row * T + n - 1]));
    std::string text = tokenizer.decode(ids);
    this->tokens += static_cast<double>(ids.size());
    bytes += static_cast<double>(text.size());
    characters += static_cast<double>(
        std::ranges::count_if(text, [](unsigned char c) { return (c & 0xc0) != 0x80; }));
  }
}

double TextSize::perplexity(double loss) const { return std::exp(loss * tokens / characters); }

double TextSize::bits_per_byte(double loss) const {
  return loss * tokens / bytes / std::numbers::ln2;
}

}  // namespace neox
