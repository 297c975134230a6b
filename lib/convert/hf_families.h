// The tables of architectures, one function for each; hf_family.h is what they are for.
#pragma once
#include <string>
#include <vector>

#include "convert/hf_family.h"

namespace neox {

// Of a field that says whether all linear layers have biases.
inline constexpr const char* kBiases = "use_bias_in_attn_linear|use_bias_in_mlp";

inline constexpr HfBuffer kFrequencies = {".rotary_emb.inv_freq", "follows from the rotary base"};

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// hf_gpt_families.cc: what grew out of GPT-2, with norms and linear layers of all kinds.
HfFamily gpt_neox();
HfFamily gpt2();
HfFamily gpt_bigcode();
HfFamily opt();
HfFamily bloom();
std::vector<HfFamily> falcons();

}  // namespace neox
