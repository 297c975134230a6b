// Sizes of texts by hand, and losses by character as GPT-NeoX's CharCounter gives them.
#include "train/text_size.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

namespace neox::testing {
namespace {

// Rows of T + 1 tokens, which are bytes: 1 token each byte.
Batch batch_of(const std::vector<std::string>& rows, const Tokenizer& tokenizer) {
  std::vector<int64_t> tokens, targets;
  int64_t T = 0;
  for (const std::string& row : rows) {
    auto ids = tokenizer.encode(row);
    T = static_cast<int64_t>(ids.size()) - 1;
    tokens.insert(tokens.end(), ids.begin(), ids.end() - 1);
    targets.insert(targets.end(), ids.begin() + 1, ids.end());
  }
  auto B = static_cast<int64_t>(rows.size());
  return {.tokens = at::tensor(tokens).view({B, T}),
          .targets = at::tensor(targets).view({B, T}),
          .weights = at::ones({B, T})};
}

TEST(TextSize, CountsTokensCharactersAndBytes) {
  Tokenizer tokenizer = Tokenizer::characters();
  TextSize size;
  size.add(batch_of({"na\u00efve \u2013", "letters   "}, tokenizer), tokenizer);
  EXPECT_EQ(size.tokens, 2 * 10);
  EXPECT_EQ(size.bytes, 2 * 10);
  EXPECT_EQ(size.characters, 7 + 10);
}

TEST(TextSize, LeavesOutRowsThatWeighNothing) {
  Tokenizer tokenizer = Tokenizer::characters();
  Batch batch = batch_of({"12345", "67890"}, tokenizer);
  batch.weights[0].zero_();
  batch.weights[1].narrow(0, 0, 3).zero_();
  TextSize size;
  size.add(batch, tokenizer);
  EXPECT_EQ(size.tokens, 5);
}

TEST(TextSize, EndsWithTheLastTokenThatWeighs) {
  Tokenizer tokenizer = Tokenizer::characters();
  Batch batch = batch_of({"12345", "67890"}, tokenizer);
  batch.weights[0].narrow(0, 2, 2).zero_();
  batch.weights[1].narrow(0, 1, 1).zero_();
  TextSize size;
  size.add(batch, tokenizer);
  EXPECT_EQ(size.tokens, 3 + 5);
  EXPECT_EQ(size.bytes, 3 + 5);
}

TEST(TextSize, MakesALossOfTokensOneOfCharactersAndBytes) {
  TextSize size{.tokens = 100, .characters = 400, .bytes = 500};
  EXPECT_DOUBLE_EQ(size.perplexity(2.0), std::exp(0.5));
  EXPECT_DOUBLE_EQ(size.bits_per_byte(2.0), 0.4 / std::log(2));
}

}  // namespace
}  // namespace neox::testing
