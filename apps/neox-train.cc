// Trains a GPT-NeoX model from NeoX's configuration files.
#include <iostream>

#include "base/memory.h"
#include "base/program.h"
#include "config/config.h"
#include "config/estimate.h"
#include "config/flags.h"
#include "config/value.h"
#include "data/sampler.h"
#include "launch/front.h"
#include "train/job.h"

using namespace neox;
namespace po = boost::program_options;

namespace {

using Strings = std::vector<std::string>;

const ProgramInfo kInfo = {
    "neox-train", "Trains GPT-NeoX models from GPT-NeoX configuration files.",
    "CONFIG... [options]",
    "The files (YAML or JSON) are merged left to right. A run resumes from the newest checkpoint\n"
    "by itself: start it again with the same command. SIGUSR1, SIGTERM and Ctrl-C save and stop\n"
    "(exit code 75).\n"
    "Under srun or mpirun each task is a rank.\n"
    "Every key of the configuration is an option too: --num-layers 12 is --set num_layers=12.",
    "  neox-train configs/quickstart.yml      # the data come from env/quickstart.sh\n"
    "  neox-train 70M local.yml -d configs/pythia --set train_iters=1000\n"
    "  neox-train configs/t9k/1-3B.yml --vocab_file vocab.json --merge_file merges.txt \\\n"
    "    --data_path enwik8/enwik8_text_document --checkpoint_dir runs/1-3B\n"
    "  neox-train configs/pythia/70M.yml paths.yml --dry-run   # memory, work and disk before you "
    "start\n"
    "  neox-train configs/quickstart.yml --explain             # every value and where it comes "
    "from\n"
    "  neox-train configs/quickstart.yml --set model_parallel_size=2 --spawn 2\n"};

void add_options(Program& program) {
  auto add = program.options().add_options();
  add("config", texts("FILE"), "configuration file; .yml may be left out");
  add("directory,d", text("DIR")->default_value(""), "directory of the configuration files");
  add("set", texts("KEY=VALUE"), "key=value: overrides the files; dots reach into dictionaries");
  add("default", texts("KEY=VALUE"),
      "key=value, where neither files nor --set mention the key (job scripts give paths so)");
  add("deepspeed-config", text("FILE")->default_value(""),
      "DeepSpeed's JSON file: its keys win over those of the files");
  add("checkpoint-dir", text("DIR"), "directory of checkpoints: save and load");
  add("spawn", po::value<int>()->value_name("N")->default_value(1),
      "ranks for each process: threads on the CPU, processes on GPUs");
  add("explain", "print every key with its value and where it comes from, and stop");
  add("dry-run", "print parameters, memory, work, checkpoints and disk of the run, and stop");
  add("keys", "print the table of all keys (Markdown), and stop");
  program.positional("config", -1);
  program.others({.option = "set",
                  .take = take_key_flag,
                  .suggest = suggest_key_flag,
                  .advice = "Of a command line of Megatron, neox-convert options makes a "
                            "configuration. "});
}

ConfigOptions config_options(const Program& program) {
  ConfigOptions options{.files = program.list("config"),
                        .directory = program.get<std::string>("directory"),
                        .deepspeed_config = program.get<std::string>("deepspeed-config"),
                        .overrides = program.list("set"),
                        .defaults = program.list("default")};
  if (program.has("checkpoint-dir"))
    for (const char* key : {"save", "load"})
      options.overrides.insert(
          options.overrides.begin(),
          concat(key, "=", yaml_text(program.get<std::string>("checkpoint-dir"))));
  return options;
}

int run(int argc, char** argv) {
  Program program(kInfo);
  add_options(program);
  if (!program.parse(argc, argv)) return 0;
  if (program.has("keys")) return std::cout << key_table_markdown(), 0;
  int ranks = program.get<int>("spawn");
  check_usage(ranks >= 1, "--spawn ", ranks, ": the number of ranks must be at least 1");
  if (kFront && !program.has("explain")) become_whole_program();
  ConfigOptions options = config_options(program);
  if constexpr (!kFront) options.samples_of_epoch = Sampler::samples_of_epoch;
  Config config = load_config(options);
  if (kFront && config.train.iters == 0) become_whole_program();  // which reads the data
  if (program.has("explain")) return std::cout << explain(config), 0;
  if constexpr (!kFront) {
    bool fewest = program.args()["spawn"].defaulted();
    if (program.has("dry-run"))
      return std::cout << dry_run(config, fewest ? fewest_ranks(config) : ranks), 0;
    Environment env = environment();
    return static_cast<int>(train(config, process_info(env, host_name()), env, ranks,
                                  {argv, argv + argc}, install_stop_signals()));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  return run_program("neox-train", [&] { return run(argc, argv); });
}
