// How likely a model finds the tokens of a text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/gpt_neox.h"

namespace neox {

// The logarithms of probabilities by softmax over the model's vocabulary with its padding, whatever
// the sampling.
struct TokenScore {
  int32_t token = 0;
  double log_probability = 0;
  std::vector<std::pair<int32_t, double>> likeliest;  // in its place, the likeliest first
};

// Of a token by the logits [V] in its place (on the CPU). vocab: only ids below it are among the
// likeliest; 0: all.
TokenScore score_of(const Tensor& logits, int32_t token, int64_t likeliest, int64_t vocab);

struct TextScores {
  std::vector<TokenScore> given;  // of each token but the first
  TokenScore next;                // of the likeliest one behind the last
};

// Of a text that is there, of at least one token and at most as many as the model has positions.
// On one rank.
TextScores score(GptNeoX& model, std::span<const int32_t> text, int64_t likeliest, int64_t vocab,
                 const AfterLayer& after_layer = {});

// What is to be said where a number of a model is not finite.
std::string not_finite(const char* name);
// The same where a log-probability is not; else "".
std::string fault_of_numbers(const TextScores& scores);

}  // namespace neox
