// Text from a checkpoint.
#include <unistd.h>

#include <iostream>

#include "base/file.h"
#include "base/memory.h"
#include "base/program.h"
#include "generate/session.h"
#include "launch/front.h"
#include "launch/process_info.h"

using namespace neox;
namespace po = boost::program_options;

namespace {

const ProgramInfo kInfo = {
    "neox-generate", "Generates text from a checkpoint of neox-train.", "CHECKPOINT [options]",
    "CHECKPOINT is the save directory of a run (its newest checkpoint is taken) or a global_step\n"
    "directory.\n"
    "Without --prompt or --file it asks for prompts, one a line.\n"
    "Weights have the type that the run trained with; --set precision=bf16 (fp32) gives another.\n"
    "On a CPU bf16 is the faster one.",
    "  neox-generate build/quickstart/checkpoints --prompt \"The secret of\"\n"
    "  neox-generate checkpoints/global_step1000 --prompt \"Once\" --temperature 0.8 --top-p 0.9 "
    "--seed 7\n"
    "  neox-generate checkpoints --file prompts.txt --batch-size 8 --num-samples 3\n"
    "  neox-generate checkpoints --prompt \"\" --num-samples 10 --temperature 1 --json\n"
    "  neox-generate checkpoints --prompt \"Once\" --set precision=bf16\n"
    "  neox-generate runs/chats --chat-template chatml --max-tokens 500   # a conversation\n"};

void add_options(Program& program) {
  auto add = program.options().add_options();
  add("checkpoint", text("DIR"), "run or global_step directory");
  add("prompt", texts("TEXT"),
      "text to continue; may be given several times; empty: a text without a prompt");
  add("file", text("FILE"),
      "file of prompts, one a line (--set prompt_end=TEXT: each ends there); -: standard input");
  add("chat-template", text("NAME|FILE|DIR"),
      "prompts are messages to a chat model, written as neox-prepare-data writes them; prints its "
      "replies (chatml, llama2, llama3, mistral, zephyr, plain, or the directory of a tokenizer "
      "that has a template)");
  add("system", text("TEXT"), "the system message in front of a conversation");
  add("max-tokens", number("N"),
      "at most so many new tokens (default: maximum_tokens of the config)");
  add("temperature", po::value<double>()->value_name("T"),
      "0 without --top-k, --top-p, --min-p: the likeliest token; higher: more varied");
  add("top-k", number("K"), "draw among the k likeliest tokens only");
  add("top-p", po::value<double>()->value_name("P"),
      "draw among the likeliest tokens that sum to p only");
  add("min-p", po::value<double>()->value_name("P")->default_value(0, "0"),
      "draw among tokens only that are at least P times as likely as the likeliest");
  add("repetition-penalty", po::value<double>()->value_name("X")->default_value(1, "1"),
      "above 1: tokens that the prompt or the text has already become less likely");
  add("seed", number("N")->default_value(1234), "equal seeds give equal texts");
  add("num-samples", number("N")->default_value(1), "texts for each prompt");
  add("json",
      "an object a line for each text: context, text (without the prompt), length, finished");
  add("batch-size", number("N")->default_value(1), "texts at once; it changes none of them");
  add("vocab-file", text("FILE"), "tokenizer, where it has moved since training");
  add("merge-file", text("FILE"), "its merges.txt (GPT-2 files)");
  add("set", texts("KEY=VALUE"),
      "key=value, on top of the checkpoint's config; e.g. precision=fp32");
  program.positional("checkpoint", 1);
}

[[maybe_unused]] void generate(const SessionOptions& options) {
  check_alone("neox-generate");
  run_session(options, std::cin, std::cout,
              ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0);
}

int run(int argc, char** argv) {
  Program program(kInfo);
  add_options(program);
  if (!program.parse(argc, argv)) return 0;
  if constexpr (kFront)
    become_whole_program();
  else
    generate(session_options(program));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  return run_program("neox-generate", [&] { return run(argc, argv); });
}
