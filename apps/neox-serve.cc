// A checkpoint behind HTTP.
#include "base/memory.h"
#include "base/program.h"
#include "launch/front.h"
#include "launch/process_info.h"
#include "serve/program.h"

using namespace neox;
namespace po = boost::program_options;

namespace {

const ProgramInfo kInfo = {
    "neox-serve", "Answers requests for texts from a checkpoint over HTTP.", "CHECKPOINT [options]",
    "CHECKPOINT is the save directory of a run (its newest checkpoint is taken) or a global_step\n"
    "directory. Programs written for OpenAI's API (/v1/completions, /v1/chat/completions) or\n"
    "Megatron-LM's text generation server (/api) can ask it; a browser shows a page at /.\n"
    "Where NEOX_SERVE_KEY is set, requests must bring it: Authorization: Bearer KEY.",
    "  neox-serve runs/first                                   # on http://127.0.0.1:5000\n"
    "  neox-serve runs/first --listen 0.0.0.0:8000 --set precision=bf16\n"
    "  neox-serve runs/chats --chat-template chatml            # also /v1/chat/completions\n"
    "  srun --gpus 1 neox-serve runs/first --listen 0.0.0.0:5000 &\n"
    "  lm_eval --model local-completions --tasks lambada_openai --model_args \\\n"
    "    base_url=http://127.0.0.1:5000/v1/completions,model=runs/first,tokenizer=models/first\n"};

void add_options(Program& program) {
  auto add = program.options().add_options();
  add("checkpoint", text("DIR"), "run or global_step directory");
  add("listen", text("[HOST:]PORT")->default_value("127.0.0.1:5000"),
      "where to take requests; 0.0.0.0 is all addresses of this machine, port 0 any that is free");
  add("batch-size", number("N")->default_value(8),
      "texts at once, for each of which memory is kept; others wait");
  add("chat-template", text("NAME|FILE|DIR"),
      "how messages are written, as for neox-prepare-data (chatml, llama2, llama3, mistral, "
      "zephyr, plain, or the directory of a tokenizer that has a template)");
  add("vocab-file", text("FILE"), "tokenizer, where it has moved since training");
  add("merge-file", text("FILE"), "its merges.txt (GPT-2 files)");
  add("set", texts("KEY=VALUE"),
      "key=value, on top of the checkpoint's config; e.g. precision=bf16");
  program.positional("checkpoint", 1);
}

int run(int argc, char** argv) {
  Program program(kInfo);
  add_options(program);
  if (!program.parse(argc, argv)) return 0;
  if constexpr (kFront) {
    become_whole_program();
  } else {
    check_alone("neox-serve");
    serve(serve_options(program));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  return run_program("neox-serve", [&] { return run(argc, argv); });
}
