// What neox-generate does: prompts in, texts out as they come.
#pragma once
#include <filesystem>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/program.h"

namespace neox {

// kPlain: each prompt and each part of its text as it comes. kJson: each text when it is finished,
// an object a line with the keys that GPT-NeoX writes (megatron/text_generation_utils.py,
// generate_samples_from_prompt).
enum class TextForm { kPlain, kJson };

struct SessionOptions {
  std::filesystem::path checkpoint;
  std::vector<std::string> prompts, overrides;
  std::filesystem::path file;  // of prompts, one a line or by prompt_end; "-": standard input
  std::string chat_template, system;  // "": prompts are texts, not messages
  TextForm form = TextForm::kPlain;
  std::optional<int64_t> max_tokens, top_k;
  std::optional<double> temperature, top_p;
  double min_p = 0, repetition_penalty = 1;
  int64_t seed = 1234, num_samples = 1, batch_size = 1;
};

SessionOptions session_options(const Program& program);

// Without prompts, and with no file or "-", the prompts are the lines of `in`, a batch of them at a
// time, or its parts by prompt_end; without a file `interactive` shows where to type, unless the
// output is JSON. With a chat template they are messages to a model that replies; only what is
// typed goes on with one conversation.
void run_session(const SessionOptions& options, std::istream& in, std::ostream& out,
                 bool interactive);

}  // namespace neox
