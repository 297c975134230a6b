#include "dataset/commands.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "data/sampler.h"
#include "dataset/command_options.h"
#include "dataset/import.h"
#include "dataset/merge.h"
#include "dataset/raw_index.h"
#include "dataset/repair.h"
#include "dataset/show.h"
#include "dataset/verify.h"
#include "tokenizer/of_config.h"

namespace neox {
namespace {

using Arguments = std::vector<std::string>;

int merge(const Arguments& arguments, std::ostream& out) {
  Program program(
      {.name = "neox-data merge",
       .summary = "Joins datasets into one.",
       .usage = "PREFIX|DIRECTORY... --output-prefix PREFIX",
       .description =
           "The documents keep their order. A directory stands for the datasets in it, in the\n"
           "order of their names. The types of the tokens must agree. The files are those of\n"
           "Megatron's tools/merge_datasets.py, byte for byte.\n",
       .examples =
           "  neox-data merge data/a_text_document data/b_text_document --output-prefix data/ab\n"
           "  neox-data merge shards/ --output-prefix data/all_text_document\n"});
  add_dataset(program);
  program.options().add_options()("input", texts("DIRECTORY"), "the same as standing alone");
  program.options().add_options()("output-prefix", text("PREFIX"), "of the new dataset");
  if (!program.parse(arguments)) return 0;
  std::vector<std::string> inputs;
  if (program.has("dataset") || !program.has("input")) inputs = prefixes(program);
  for (const std::string& input : program.list("input")) inputs.push_back(input);
  std::string output = output_prefix(program);
  Totals totals = merge_datasets(inputs, output);
  out << output << ": " << amounts(totals) << "\n";
  return 0;
}

int split(const Arguments& arguments, std::ostream& out) {
  Program program(
      {.name = "neox-data split",
       .summary = "Cuts a dataset into parts of whole documents.",
       .usage = "PREFIX --output-prefix PREFIX (--documents N | --tokens N | --shares SPLIT)",
       .description =
           "The parts are <output>_00000, _00001, ..., or with --shares <output>_train, _valid\n"
           "and _test, cut as the key `split` of a configuration cuts for training.\n",
       .examples =
           "  neox-data split data/all --output-prefix parts/all --tokens 1000000000\n"
           "  neox-data split data/all --output-prefix data/all --shares \"969, 30, 1\"\n"});
  add_dataset(program);
  auto add = program.options().add_options();
  add("output-prefix", text("PREFIX"), "first part of the names of the parts");
  add("documents", number("N"), "parts of N documents");
  add("tokens", number("N"), "parts of at most N tokens; a longer document is alone");
  add("shares", text("SPLIT"), "train, valid and test, such as \"969, 30, 1\"");
  if (!program.parse(arguments)) return 0;
  int rules = program.has("documents") + program.has("tokens") + program.has("shares");
  check_usage(rules == 1, "give one of --documents, --tokens and --shares");
  SplitRule rule;
  if (auto shares = program.given<std::string>("shares"))
    rule = {.by = SplitRule::By::kShares, .shares = *shares};
  else if (auto tokens = program.given<int64_t>("tokens"))
    rule = {.by = SplitRule::By::kTokens, .size = *tokens};
  else
    rule = {.by = SplitRule::By::kDocuments, .size = program.get<int64_t>("documents")};
  for (const DatasetInfo& part : split_dataset(one_prefix(program), output_prefix(program), rule))
    out << part.prefix << ": " << amounts(part.totals) << "\n";
  return 0;
}

void print_row(std::ostream& out, const std::string& name, const Totals& totals, const char* type) {
  out << printed("%15s %15s %19s %7s %9s  ", with_commas(totals.documents).c_str(),
                 with_commas(totals.sequences).c_str(), with_commas(totals.tokens).c_str(), type,
                 human_bytes(static_cast<double>(totals.bytes)).c_str())
      << name << "\n";
}

int count(const Arguments& arguments, std::ostream& out) {
  Program program(
      {.name = "neox-data count",
       .summary = "Counts the documents, sequences and tokens of datasets.",
       .usage = "PREFIX...",
       .description =
           "Reads .idx alone. With several datasets the sum comes last; one that cannot be read\n"
           "is left out of it, and is an error in the end.\n",
       .examples = "  neox-data count data/pile_text_document\n"
                   "  neox-data count data/*/*.idx\n"});
  add_dataset(program);
  if (!program.parse(arguments)) return 0;
  Totals sum;
  Exit exit = Exit::kDone;
  std::vector<std::string> names = prefixes(program), damaged;
  out << "      documents       sequences              tokens    type      .bin  dataset\n";
  for (const std::string& prefix : names) try {
      DatasetInfo info = count_dataset(prefix);
      print_row(out, info.prefix, info.totals, name_of(info.type));
      sum += info.totals;
    } catch (const Error& e) {
      damaged.push_back(e.what());
      exit = e.exit();
    }
  if (names.size() > 1)
    print_row(out, concat("(", names.size() - damaged.size(), " datasets)"), sum, "");
  if (!damaged.empty()) fail(exit, join(damaged, "\n"));
  return 0;
}

void show_run(const Program& program, std::ostream& out) {
  ConfigOptions options{.files = program.get<std::vector<std::string>>("dataset"),
                        .directory = program.given<std::string>("directory").value_or(""),
                        .overrides = program.list("set"),
                        .samples_of_epoch = Sampler::samples_of_epoch};
  Config config = load_config(options);
  std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(program);
  if (!tokenizer) tokenizer = load_tokenizer(config);
  show_step(
      config, tokenizer.get(),
      {.step = program.get<int64_t>("step"),
       .rank = {.rank = program.get<int64_t>("rank"), .ranks = program.get<int64_t>("ranks")}},
      out);
}

int show(const Arguments& arguments, std::ostream& out) {
  Program program(
      {.name = "neox-data show",
       .summary = "Shows a document, or the samples of a step of training.",
       .usage = "PREFIX --document N [options], or CONFIG... --step S [--rank R --ranks N]",
       .description =
           "A document is shown as text with --vocab-file, else as ids. Of a step it shows what\n"
           "data rank R of N sees in a run that starts with the configuration: of each sample the\n"
           "ids, where they come from, the weights of their losses (the t-th is that of "
           "predicting\n"
           "token t + 1), and the text where the tokenizer is there. Of a run that was resumed "
           "with\n"
           "other settings, give those of its first start: the batch and the number of iterations\n"
           "decide the order.\n",
       .examples = "  neox-data show data/pile_text_document --document 17 -v 20B_tokenizer.json\n"
                   "  neox-data show 70M.yml local.yml --step 1000 --rank 3 --ranks 8\n"});
  add_dataset(program);
  add_tokenizer(program);
  auto add = program.options().add_options();
  add("document", number("N"), "document to show, counted from 0");
  add("step", number("S"), "step to show, counted from 1");
  add("rank", number("R")->default_value(0), "data rank, counted from 0");
  add("ranks", number("N")->default_value(1),
      "data ranks: those of the job / (pipe_parallel_size x model_parallel_size)");
  add("directory,d", text("DIR"), "directory of the configuration files");
  add("set", texts("KEY=VALUE"), "on top of the configuration");
  if (!program.parse(arguments)) return 0;
  check_usage(program.has("document") != program.has("step"),
              "give --document N of a dataset, or --step S of a configuration");
  if (program.has("step")) {
    check_usage(program.has("dataset"), "no configuration is named");
    show_run(program, out);
    return 0;
  }
  std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(program);
  show_document(one_prefix(program), program.get<int64_t>("document"), tokenizer.get(), out);
  return 0;
}

VerifyOptions verify_options(const Program& program) {
  std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(program);
  VerifyOptions options{.end_of_document = end_of_document(program, tokenizer.get()),
                        .threads = static_cast<int>(program.get<int64_t>("workers")),
                        .limit = program.get<int64_t>("limit")};
  if (tokenizer) options.vocab = tokenizer->vocab_size();
  if (auto size = program.given<int64_t>("vocab-size")) options.vocab = *size;
  check_usage(options.vocab > 0, "--vocab-size ", options.vocab, " is not at least 1");
  check_usage(options.threads > 0 && options.threads <= 4096, "--workers ", options.threads,
              " is not in 1 .. 4096");
  check_usage(options.limit > 0 && options.limit <= 1'000'000'000, "--limit ", options.limit,
              " is not in 1 .. 1000000000");
  return options;
}

int verify(const Arguments& arguments, std::ostream& out) {
  Program program(
      {.name = "neox-data verify",
       .summary = "Looks through datasets for all that may be wrong with them.",
       .usage = "PREFIX... [--vocab-file FILE | --vocab-size N] [options]",
       .description =
           "It checks the structure of .idx, the size of .bin, that documents follow one another,\n"
           "that all token ids are in the vocabulary, and says how many documents end in the\n"
           "end-of-document token. The exit code is 0 where all is well and 74 where something is\n"
           "wrong; notes are no fault.\n",
       .examples = "  neox-data verify data/pile_text_document --vocab-file 20B_tokenizer.json\n"
                   "  neox-data verify data/*.idx --vocab-size 50277 --eod 0\n"});
  add_dataset(program);
  add_tokenizer(program);
  auto add = program.options().add_options();
  add("vocab-size", number("N"), "ids are 0 .. N-1, where no --vocab-file says so");
  add("eod", number("ID"), "the end-of-document token, where no --vocab-file says so");
  add("limit", number("N")->default_value(100),
      "findings of a kind to list, the others are counted");
  add("workers",
      number("N")->default_value(std::max(1u, std::thread::hardware_concurrency()), "all cores"),
      "threads that read");
  if (!program.parse(arguments)) return 0;
  VerifyOptions options = verify_options(program);
  bool sound = true, any = options.vocab == IndexedDataset::kAnyToken;
  const char* unread = any ? "; without --vocab-file or --vocab-size any token id passes" : "";
  std::vector<std::string> unreadable;
  for (const std::string& prefix : prefixes(program)) try {
      Verification verdict = verify_dataset(prefix, options);
      for (const std::string& finding : verdict.findings) out << "wrong: " << finding << "\n";
      for (const std::string& note : verdict.notes) out << "note: " << note << "\n";
      out << prefix << ": " << amounts(verdict.totals) << ": "
          << (verdict.sound() ? "sound" : "not sound") << unread << "\n";
      sound &= verdict.sound();
    } catch (const Error& e) {
      if (e.exit() != Exit::kIo) throw;
      unreadable.push_back(e.what());
    }
  if (!unreadable.empty()) fail(Exit::kIo, join(unreadable, "\n"));
  return static_cast<int>(sound ? Exit::kDone : Exit::kIo);
}

int repair(const Arguments& arguments, std::ostream& out) {
  Program program(
      {.name = "neox-data repair",
       .summary = "Writes the right .idx for a dataset whose .idx is wrong in a known way.",
       .usage = "PREFIX (--output-prefix PREFIX | --in-place) [--eod ID | --vocab-file FILE]",
       .description =
           "Megatron from November 2022 to August 2023, and Megatron-DeepSpeed, write the tokens\n"
           "that end documents and do not count them, so that each document begins with the end "
           "of\n"
           "the one before. The true documents are found where each ends in that token. A last\n"
           "document that ends elsewhere than at the last sequence is mended too. Where it is not\n"
           "certain what was meant, nothing is written.\n",
       .examples = "  neox-data repair data/wiki_text_document --output-prefix data/wiki_mended\n"
                   "  neox-data repair data/wiki_text_document --in-place   # keeps .idx.old\n"});
  add_dataset(program);
  add_tokenizer(program);
  auto add = program.options().add_options();
  add("output-prefix", text("PREFIX"), "write a whole dataset there");
  add("in-place", "replace .idx, and keep the old one as .idx.old");
  add("eod", number("ID"),
      "the end-of-document token; by default where all documents agree on one");
  if (!program.parse(arguments)) return 0;
  check_usage(program.has("output-prefix") != program.has("in-place"),
              "give --output-prefix PREFIX, or --in-place");
  std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(program);
  std::string prefix = one_prefix(program);
  Repaired done = repair_dataset(
      prefix, {.output_prefix = program.given<std::string>("output-prefix").value_or(""),
               .end_of_document = end_of_document(program, tokenizer.get())});
  if (!done.any()) return out << prefix << ": nothing is wrong; nothing was written\n", 0;
  if (done.lengthened > 0)
    out << with_commas(done.lengthened) << " documents got the token that ends them, "
        << *done.end_of_document << "\n";
  if (done.boundaries != done.boundaries_before)
    out << with_commas(done.boundaries) << " documents, not " << with_commas(done.boundaries_before)
        << "\n";
  out << program.given<std::string>("output-prefix").value_or(prefix) << ": "
      << amounts(done.totals) << "\n";
  return 0;
}

int import(const Arguments& arguments, std::ostream& out) {
  Program program({.name = "neox-data import",
                   .summary = "Turns a dataset of the old format TNTIDX into today's.",
                   .usage = "PREFIX --output-prefix PREFIX",
                   .description = "Such datasets were written with --dataset-impl lazy or cached. "
                                  "Tokens, their type,\nlengths and documents stay as they are.\n",
                   .examples = "  neox-data import old/pile_text_document --output-prefix "
                               "data/pile_text_document\n"});
  add_dataset(program);
  program.options().add_options()("output-prefix", text("PREFIX"), "of the new dataset");
  if (!program.parse(arguments)) return 0;
  std::string prefix = one_prefix(program), output = output_prefix(program);
  Totals totals = import_tntidx(prefix, output);
  out << output << ": " << amounts(totals) << "\n";
  return 0;
}

struct Command {
  const char* name;
  int (*run)(const Arguments&, std::ostream&);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"count", count, "documents, sequences and tokens"},
    {"show", show, "a document as text, or the samples of a step of training"},
    {"verify", verify, "look for all that may be wrong"},
    {"merge", merge, "join datasets into one"},
    {"split", split, "cut one into parts"},
    {"repair", repair, "write the right .idx where the old tools wrote a wrong one"},
    {"import", import, "turn the old format TNTIDX into today's"},
};

ProgramInfo general_info() {
  std::string list = "Commands (each has --help with examples):\n";
  for (const Command& command : kCommands)
    list += concat("  ", command.name, std::string(8 - std::string(command.name).size(), ' '),
                   command.summary, "\n");
  return {.name = "neox-data",
          .summary = "Counts, shows, checks, joins, cuts and mends the datasets of training.",
          .usage = "COMMAND ...",
          .description = list +
                         "\nA dataset is named by its prefix, the path without .bin and "
                         ".idx.\n",
          .examples =
              "  neox-data count data/*.idx\n"
              "  neox-data verify data/pile_text_document --vocab-file "
              "20B_tokenizer.json\n"
              "  neox-data show 70M.yml local.yml --step 1000 --rank 3 --ranks 8\n"};
}

}  // namespace

int run_data_command(const std::vector<std::string>& arguments, std::ostream& out) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.push_back(command.name);
    if (!arguments.empty() && arguments[0] == command.name)
      return command.run({arguments.begin() + 1, arguments.end()}, out);
  }
  if (!arguments.empty() && arguments[0].starts_with('-')) {
    Program(general_info()).parse({arguments[0]});
    return 0;
  }
  std::string near = arguments.empty() ? "" : nearest(arguments[0], names);
  fail(Exit::kUsage, arguments.empty() ? "no command is given" : "unknown command ",
       arguments.empty() ? "" : arguments[0], did_you_mean(near, "."), " There are ",
       join(names, ", "), ". See neox-data --help.");
}

}  // namespace neox
