// What tests/oracle/convert.py asks of a checkpoint: logits_tool CHECKPOINT PRECISION NEW OUT,
// tokens on standard input. Writes the logits behind each of them as float32 [T, V] into the file
// OUT and prints the NEW likeliest tokens that follow.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/program.h"
#include "generate/generate.h"
#include "generate/load.h"

namespace neox {
namespace {

Tensor next_logits(GptNeoX& model, int32_t token, KvCache& cache) {
  Tensor tokens = at::full({1, 1}, token, at::kLong);
  return model.generate_step({}, tokens, cache).to(at::kFloat).contiguous().view({-1});
}

int run(const std::vector<std::string>& arguments) {
  check_usage(arguments.size() == 4, "usage: logits_tool CHECKPOINT PRECISION NEW OUT < TOKENS");
  LoadedModel loaded(arguments[0], {"precision=" + arguments[1]}, at::kCPU);
  std::vector<int32_t> prompt;
  for (int32_t token; std::cin >> token;) prompt.push_back(token);
  at::NoGradGuard no_grad;
  KvCache cache = loaded.model().new_cache(1, static_cast<int64_t>(prompt.size()));
  std::ofstream out(arguments[3], std::ios::binary);
  for (int32_t token : prompt) {
    Tensor logits = next_logits(loaded.model(), token, cache);
    out.write(static_cast<const char*>(logits.const_data_ptr()),
              static_cast<std::streamsize>(logits.nbytes()));
  }
  TextRequest greedy{prompt, {.max_tokens = std::stoll(arguments[2])}};
  auto texts = generate(loaded.model(), {&greedy, 1}, {});
  for (int32_t token : texts.front()) std::cout << token << " ";
  std::cout << std::endl;
  return out.good() ? 0 : static_cast<int>(Exit::kIo);
}

}  // namespace
}  // namespace neox

int main(int argc, char** argv) {
  return neox::run_program("logits_tool", [&] { return neox::run({argv + 1, argv + argc}); });
}
