#include "convert/commands.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "config/config.h"
#include "convert/convert.h"
#include "convert/inspect.h"
#include "convert/megatron_options.h"

namespace neox {
namespace {

using Arguments = std::vector<std::string>;
namespace po = boost::program_options;

// "5GB", "500MB", "1GiB", "1000000".
int64_t bytes_of(const std::string& words) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},         {"B", 1},           {"KB", 1e3},
                             {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12},
                             {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}};
  double amount = 0;
  auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), amount);
  std::string unit(
      trim(std::string_view(end, static_cast<size_t>(words.data() + words.size() - end))));
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const Unit& u : kUnits)
    if (error == std::errc() && unit == u.name && amount > 0 && amount * u.bytes < 1e18)
      return std::llround(amount * u.bytes);
  fail(Exit::kUsage, "--max-shard-size ", words, ": write a size such as 5GB or 500MB");
}

std::string format_list() {
  std::string list = "The formats are:\n";
  size_t width = 0;
  for (const Format& format : formats()) width = std::max(width, std::string(format.name).size());
  for (const Format& format : formats()) {
    std::string name = format.name;
    name.resize(width + 2, ' ');
    list += concat("  ", name, format.words, "\n");
  }
  return list;
}

std::vector<std::string> two_paths(const Program& program, const char* what) {
  auto paths = program.list("path");
  check_usage(paths.size() == 2, what, "; found ", paths.size(), ". See neox-convert --help.");
  return paths;
}

Program convert_program() {
  Program program(
      {.name = "neox-convert",
       .summary = "Converts checkpoints between formats.",
       .usage = "[--from X] --to Y SRC DST",
       .description =
           format_list() +
           "\nThe weights are converted, with configuration and tokenizer; from neox to neox.cpp\n"
           "the optimizer's state too: a run goes on with load: DST. From converted weights it\n"
           "starts with load: DST and finetune: true. DST must not exist.\n\n"
           "Other commands, each with --help:\n"
           "  inspect SRC  tensors with shapes, types and statistics, and the train state\n"
           "  diff A B     the largest differences; ends with 1 where there are any\n"
           "  options ...  a command line of Megatron's pretrain_gpt.py as a configuration\n",
       .examples =
           "  neox-convert --to neox.cpp models/pythia-70m checkpoints/pythia-70m\n"
           "  neox-convert --to hf checkpoints/my-run models/my-run --dtype fp16\n"
           "  neox-convert --to neox checkpoints/my-run models/for-neox --tensor-parallel 2\n"
           "  neox-convert inspect checkpoints/my-run\n"
           "  neox-convert diff models/my-run checkpoints/my-run\n"});
  auto add = program.options().add_options();
  add("path", texts("PATH"), "SRC and DST");
  add("from", text("FORMAT"), "format of SRC (default: what it looks like)");
  add("to", text("FORMAT"), "format of DST");
  add("dtype", text("TYPE"), "fp32, fp16, bf16 or fp64 (default: as in SRC)");
  add("max-shard-size", text("SIZE")->default_value("5GB"), "hf: of a file of tensors");
  add("tensor-parallel", number("N")->default_value(1),
      "neox, megatron, megatron-deepspeed: tensor-parallel ranks that DST is for");
  add("pipeline-parallel", number("N")->default_value(1),
      "neox, megatron: pipeline stages that DST is for; 0: pipe_parallel_size: 0, "
      "--no-pipeline-parallel");
  add("padded-vocab", number("N"),
      "rows of embedding and head: new ones are zeros, the last ones are cut off (default: as in "
      "SRC)");
  program.positional("path", 2);
  return program;
}

ConvertOptions convert_options(const Program& program) {
  auto paths = two_paths(program, "give SRC and DST");
  check_usage(program.has("to"),
              "to which format? Give --to with one of those of neox-convert --help");
  ConvertOptions options{.from = program.given<std::string>("from").value_or(""),
                         .to = program.get<std::string>("to"),
                         .source = paths[0],
                         .target = paths[1],
                         .rows = program.given<int64_t>("padded-vocab"),
                         .max_shard_bytes = bytes_of(program.get<std::string>("max-shard-size")),
                         .tensor_parallel = program.get<int64_t>("tensor-parallel"),
                         .pipeline_parallel = program.get<int64_t>("pipeline-parallel")};
  if (auto type = program.given<std::string>("dtype")) {
    options.dtype = parameter_type(*type == "bfloat16" ? "bf16" : *type);
    check_usage(options.dtype.has_value(), "--dtype ", *type, ": give fp32, fp16, bf16 or fp64");
  }
  return options;
}

int convert_model(const Arguments& arguments, std::ostream& out) {
  Program program = convert_program();
  if (program.parse(arguments)) out << convert(convert_options(program));
  return 0;
}

int inspect_one(const Arguments& arguments, std::ostream& out) {
  Program program({.name = "neox-convert inspect",
                   .summary = "Shows the tensors of a checkpoint, and its train state.",
                   .usage = "[--from X] SRC",
                   .description = format_list() + "A single .safetensors file will do.\n",
                   .examples = "  neox-convert inspect models/pythia-70m\n"
                               "  neox-convert inspect checkpoints/my-run/global_step1000\n"});
  auto add = program.options().add_options();
  add("path", text("SRC"), "what to look at");
  add("from", text("FORMAT"), "format of SRC (default: what it looks like)");
  program.positional("path", 1);
  if (!program.parse(arguments)) return 0;
  check_usage(program.has("path"), "inspect what? Give a directory. See neox-convert --help.");
  auto path = program.get<std::string>("path");
  out << inspect(format_of(path, program.given<std::string>("from").value_or("")), path);
  return 0;
}

int diff_two(const Arguments& arguments, std::ostream& out) {
  Program program({.name = "neox-convert diff",
                   .summary = "Shows how the tensors of two checkpoints differ.",
                   .usage = "[--from X] A B",
                   .description = "Of two formats the parameters are compared, of one format all "
                                  "tensors.\nEnds with 0 where all are equal bit for bit, with 1 "
                                  "where not.\n",
                   .examples = "  neox-convert diff run/global_step1000 run/global_step2000\n"
                               "  neox-convert diff --from hf --from neox.cpp models/a runs/a\n"});
  auto add = program.options().add_options();
  add("path", texts("PATH"), "A and B");
  add("from", texts("FORMAT"),
      "format of both; given twice, of A and of B (default: what they look like)");
  program.positional("path", 2);
  if (!program.parse(arguments)) return 0;
  auto paths = two_paths(program, "give two checkpoints");
  auto from = program.list("from");
  check_usage(from.size() <= 2, "--from is there ", from.size(),
              " times; give it once for both, or twice, for A and for B");
  if (from.empty()) from = {""};
  const Format& first = format_of(paths[0], from.front());
  const Format& second = format_of(paths[1], from.back());
  Comparison found = diff(first, paths[0], second, paths[1]);
  out << found.text;
  return static_cast<int>(found.equal ? Exit::kDone : Exit::kDiffers);
}

constexpr const char* kOptionsHelp =
    "Usage: neox-convert options pretrain_gpt.py OPTIONS... > run.yml\n\n"
    "Makes a configuration for neox-train of a command line of Megatron-LM or Megatron-DeepSpeed,\n"
    "with Megatron's defaults written out. What is in front of the .py is left out, so in a "
    "script\n"
    "it is enough to put `neox-convert options` in front of the line, behind srun and the like.\n"
    "Options that change the run and have no equivalent are named in the file and as warnings.\n\n"
    "Examples:\n"
    "  neox-convert options torchrun pretrain_gpt.py $GPT_ARGS $DATA_ARGS > run.yml\n"
    "  neox-train run.yml --dry-run\n";

int translate_options(const Arguments& arguments, std::ostream& out) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h")
    return out << kOptionsHelp, 0;
  MegatronOptions made = read_megatron_options(arguments);
  out << made.yaml;
  for (const std::string& words : made.warnings) log_warning(words);
  load_config({.texts = {{"the configuration above", made.yaml}}});
  return 0;
}

// What is neither an option nor a path may be meant as a command.
void check_command(const Arguments& arguments) {
  static const Arguments kCommands = {"inspect", "diff", "options"};
  const std::string& word = arguments[0];
  bool converts = std::ranges::any_of(arguments, [](const std::string& a) {
    return a == "--to" || a.starts_with("--to=") || a == "--help" || a == "--version";
  });
  std::error_code error;
  if (converts || word.starts_with("-") || fs::exists(word, error)) return;
  std::string near = nearest(word, kCommands);
  check_usage(near.empty(), "no command '", word, "'; did you mean neox-convert ", near,
              "? See neox-convert --help.");
}

}  // namespace

int run_convert_command(const Arguments& arguments, std::ostream& out) {
  Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (!arguments.empty() && arguments[0] == "inspect") return inspect_one(rest, out);
  if (!arguments.empty() && arguments[0] == "diff") return diff_two(rest, out);
  if (!arguments.empty() && arguments[0] == "options") return translate_options(rest, out);
  if (!arguments.empty()) check_command(arguments);
  return convert_model(arguments, out);
}

}  // namespace neox
