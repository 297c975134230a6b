// Trains a GPT-NeoX model from NeoX's configuration files.
#include <iostream>

#include "base/memory.h"
#include "base/program.h"
#include "config/config.h"
#include "launch/openmp.h"
#include "train/job.h"
#include "train/run.h"

int main(int argc, char** argv) {
  using namespace neox;
  namespace po = boost::program_options;
  let_openmp_threads_sleep();
  keep_freed_memory();
  return run_program("neox-train", [&] {
    Program program({
        .name = "neox-train",
        .summary = "Trains GPT-NeoX models from GPT-NeoX configuration files.",
        .usage = "CONFIG... [options]",
        .description = "The files (YAML or JSON) are merged left to right. A run resumes from the "
                       "newest checkpoint by itself: start it\n"
                       "again with the same command. SIGUSR1, SIGTERM and Ctrl-C save and stop "
                       "(exit code 75).\nUnder srun or mpirun each task is a rank.",
        .examples = "  neox-train configs/quickstart.yml\n"
                    "  neox-train 70M local.yml -d configs/pythia --set train_iters=1000\n"
                    "  neox-train configs/pythia/70M.yml paths.yml --dry-run   # memory, work and "
                    "disk before you start\n"
                    "  neox-train configs/quickstart.yml --explain             # every value and "
                    "where it comes from\n"
                    "  neox-train configs/quickstart.yml --set model_parallel_size=2 --spawn 2\n",
    });
    program.options().add_options()("config", po::value<std::vector<std::string>>(),
                                    "configuration file; .yml may be left out")(
        "directory,d", po::value<std::string>()->default_value(""),
        "directory of the configuration files")(
        "set", po::value<std::vector<std::string>>(),
        "key=value: overrides the files; dots reach into dictionaries")(
        "default", po::value<std::vector<std::string>>(),
        "key=value, where neither files nor --set mention the key (job scripts give paths so)")(
        "spawn", po::value<int>()->default_value(1),
        "ranks for each process: threads on the CPU, processes on GPUs")(
        "explain", "print every key with its value and where it comes from, and stop")(
        "dry-run", "print parameters, memory, work, checkpoints and disk of the run, and stop")(
        "keys", "print the table of all keys (Markdown), and stop");
    program.positional("config", -1);
    if (!program.parse(argc, argv)) return 0;
    if (program.has("keys")) return std::cout << key_table_markdown(), 0;
    ConfigOptions options{.directory = program.get<std::string>("directory")};
    if (program.has("config")) options.files = program.get<std::vector<std::string>>("config");
    if (program.has("set")) options.overrides = program.get<std::vector<std::string>>("set");
    if (program.has("default")) options.defaults = program.get<std::vector<std::string>>("default");
    int ranks = program.get<int>("spawn");
    check_usage(ranks >= 1, "--spawn ", ranks, ": the number of ranks must be at least 1");
    Config config = load_config(options);
    if (program.has("explain")) return std::cout << explain(config), 0;
    if (program.has("dry-run")) return std::cout << dry_run(config, ranks), 0;
    Environment env = environment();
    return static_cast<int>(train(config, process_info(env, host_name()), env, ranks,
                                  {argv, argv + argc}, install_stop_signals()));
  });
}
