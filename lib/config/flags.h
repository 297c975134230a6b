// Keys as options of a command line, as scripts of GPT-NeoX and Megatron write them: "--num-layers
// 12" and "--num_layers=12" say "num_layers=12". There is no list of them: each key of the table is
// one.
#pragma once
#include <string>
#include <vector>

namespace neox {

// Takes a key from the front of the arguments and returns it as --set wants it; "" where the first
// argument is no key's option. A truth value may be left out: "--checkpoint-activations" is true,
// "--no-checkpoint-activations" false, and "--fp16", a dictionary, is "fp16.enabled=true". Throws
// Error (64) where a value is missing.
std::string take_key_flag(std::vector<std::string>& arguments);

// What to say of an option that is neither a key nor one of the program's: "; here it is
// train_micro_batch_size_per_gpu", "; did you mean --num-layers?"
std::string suggest_key_flag(const std::string& option, std::vector<std::string> options);

}  // namespace neox
