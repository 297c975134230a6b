#include "prepare/prepare_options.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/cpu.h"
#include "prepare/label_options.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

const std::map<std::string, std::string> kOtherSpellings = {
    {"--json-keys", "--jsonl-keys"},       {"--json-key", "--jsonl-keys"},
    {"--jsonl-key", "--jsonl-keys"},       {"--vocab", "--vocab-file"},
    {"--merges-file", "--merge-file"},     {"--merges", "--merge-file"},
    {"--tokenizer", "--tokenizer-type"},   {"--data-dir", "--data-path"},
    {"--tokenizer-model", "--vocab-file"}, {"--tokenizer-name-or-path", "--tokenizer-path"},
};

const char* kDescription =
    "Reads files of JSON lines (an object with a \"text\" on each line), JSON arrays of such\n"
    "objects, Parquet and Arrow (with a column \"text\") and plain text, or whole directories of\n"
    "them, also compressed (gzip, zstd, xz, bzip2, lz4) and in archives (tar, zip; not Parquet "
    "and\n"
    "Arrow), and writes <prefix>_<key>_document.bin and .idx, which neox-train, GPT-NeoX and\n"
    "Megatron read. The documents keep their order. A text file is one document, or with\n"
    "--split-on several. The flags of preprocess_data.py of GPT-NeoX and Megatron and of "
    "GPT-NeoX's\n"
    "prepare_data.py are taken, also with underscores, and as --json-keys and --vocab.\n"
    "The name of a corpus alone fetches it and writes DIR/NAME/NAME_text_document; the tokenizer\n"
    "is fetched too where it is missing. Several tasks (srun -n 8 neox-prepare-data ...) share\n"
    "the work and write the same files as one.\n";

const char* kExamples =
    "  # JSON lines with the tokenizer of GPT-NeoX-20B and Pythia, on all cores\n"
    "  neox-prepare-data --input pile.jsonl --output-prefix data/pile \\\n"
    "    --tokenizer-type HFTokenizer --vocab-file 20B_tokenizer.json --append-eod\n"
    "  # compressed files, as they are; lines that cannot be read are counted\n"
    "  neox-prepare-data --input 'pile/*.jsonl.zst' --skip-bad-lines --output-prefix data/pile \\\n"
    "    --vocab-file 20B_tokenizer.json --append-eod\n"
    "  # a corpus by its name: data/enwik8/enwik8_text_document, with data/20B_tokenizer.json\n"
    "  neox-prepare-data enwik8 --data-path data\n"
    "  # the same where compute nodes have no network: on the login node, then in a job\n"
    "  neox-prepare-data enwik8 --data-path /fsx/data --download-only\n"
    "  srun -N 2 --ntasks-per-node 2 neox-prepare-data enwik8 --data-path /fsx/data --offline\n"
    "  # GPT-2's tokenizer, two keys: data/wiki_title_document and data/wiki_text_document\n"
    "  neox-prepare-data --input wiki-en/all --json-keys title text --output-prefix data/wiki \\\n"
    "    --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt\n"
    "  # conversations for fine-tuning, and labels for the replies alone\n"
    "  neox-prepare-data --input chats.jsonl --jsonl-keys messages --chat-template chatml \\\n"
    "    --tokenizer-path models/chat --output-prefix data/chats\n"
    "  # train a tokenizer of 4,000 entries on quotations parted by lines of %, and use it\n"
    "  neox-prepare-data --input /usr/share/games/fortunes --split-on % --append-eod \\\n"
    "    --train-tokenizer 4000 --vocab-file data/tokenizer.json --output-prefix data/fortunes\n";

std::string need(const Program& program, const std::string& option, const std::string& why,
                 const std::string& otherwise) {
  auto value = program.given<std::string>(option);
  if (!value && !otherwise.empty()) return otherwise;
  check_usage(value && !value->empty(), "--", option, " is missing: ", why,
              ". See neox-prepare-data --help.");
  return *value;
}

// Options of Megatron's and GPT-NeoX's tools that change nothing here, with what stands in --help.
struct Foreign {
  const char* name;
  const char* value;  // what it takes; null: nothing
  const char* why;
};

constexpr Foreign kNoEffect[] = {
    {"num-docs", "N", "progress is measured in bytes"},
    {"log-interval", "N", "progress is shown by time"},
    {"partitions", "N", "all workers read one input"},
    {"keep-sequential-samples", nullptr, "documents keep their order"},
    {"chunk-size", "N", "work is shared out by itself"},
    {"find-optimal-num-workers", nullptr, "all cores work"},
    {"workers-to-check", "N...", "all cores work"},
    {"performance-dir", "DIR", "all cores work"},
    {"trust-remote-code", nullptr, "no code comes with a tokenizer"},
    {"use-gigatoken", nullptr, "there is one implementation"},
    {"tokenizer-metadata", "FILE", "the tokenizer says what it is"},
    {"make-vocab-size-divisible-by", "N", "ids are the same; it is a key of neox-train"},
    {"pad-vocab-size-to", "N", "ids are the same; it is a key of neox-train"},
    {"padded-vocab-size", "N", "ids are the same; it is a key of neox-train"}};

// And those that would change what is written.
constexpr Foreign kRefused[] = {
    {"append-bos", nullptr,
     "what begins a text is said by the tokenizer, such as Llama2Tokenizer; leave it out"},
    {"ftfy", nullptr,
     "its rules live in a Python library and change the text; run ftfy over the JSON lines first"},
    {"keep-newlines", nullptr, "it is of models of the BERT kind; line ends are kept as they are"},
    {"lang", "NAME", "it is of models of the BERT kind; leave it out"},
    {"split-sentences", nullptr,
     "it is for models of the BERT kind, which are not trained here; leave it out for GPT models"},
    {"vocab-size", "N", "it is of Megatron's NullTokenizer; the size is that of --vocab-file"},
    {"null-tokenizer-eod-id", "ID", "it is of Megatron's NullTokenizer"},
    {"vocab-extra-ids", "N", "it is of T5; leave it out for GPT models"},
    {"tiktoken-pattern", "NAME", "the name of the file of ranks says its words"},
    {"tiktoken-num-special-tokens", "N", "the name of the file of ranks says its special tokens"},
    {"tokenizer-special-tokens", "TOKEN...", "add them to the tokenizer's own files"},
    {"tokenizer-hf-no-use-fast", nullptr, "a tokenizer.json is the fast kind"},
    {"tokenizer-hf-no-include-special-tokens", nullptr,
     "take the template (post_processor) out of the tokenizer.json"},
    {"tokenizer-sentencepiece-legacy", nullptr, "special tokens in texts are text; leave it out"}};

void add_foreign(Program& program) {
  auto add = program.options().add_options();
  auto each = [&](const Foreign& one, const char* begin) {
    std::string words = concat(begin, one.why);
    if (!one.value)
      add(one.name, words.c_str());
    else if (std::string_view(one.value).ends_with("..."))
      add(one.name, texts(one.value)->multitoken(), words.c_str());
    else
      add(one.name, text(one.value), words.c_str());
  };
  for (const Foreign& one : kNoEffect) each(one, "no effect: ");
  for (const Foreign& one : kRefused) each(one, "refused: ");
}

void refuse_unsupported(const Program& program) {
  for (const Foreign& one : kRefused)
    check_usage(!program.has(one.name), "--", one.name, " is not supported: ", one.why);
  auto impl = program.get<std::string>("dataset-impl");
  check_usage(impl == "mmap", "--dataset-impl ", impl,
              " is not written here: it is the old format TNTIDX, which newer tools do not read; "
              "mmap is the one to use");
}

void check_tokenizer_type(const std::string& type) {
  static const std::set<std::string> kHere = {
      "HFTokenizer",     "GPT2BPETokenizer",  "HFGPT2Tokenizer",   "SPMTokenizer",
      "Llama2Tokenizer", "TiktokenTokenizer", "CharLevelTokenizer"};
  static const std::set<std::string> kOthers = {"BertWordPieceLowerCase", "BertWordPieceCase",
                                                "NullTokenizer", "TikTokenizer"};
  check_usage(
      kHere.contains(type), "--tokenizer-type ", type, " is ",
      kOthers.contains(type) ? "not supported" : "unknown",
      "; give HFTokenizer or HuggingFaceTokenizer (a tokenizer.json, or --tokenizer-path "
      "DIR), GPT2BPETokenizer (vocab.json and merges.txt), SPMTokenizer or "
      "GPTSentencePieceTokenizer (a tokenizer.model of SentencePiece), Llama2Tokenizer (the "
      "same behind <s>), TiktokenTokenizer (such as cl100k_base.tiktoken), HFGPT2Tokenizer "
      "(a directory of GPT-2's files) or CharLevelTokenizer");
}

void check_no_use(const Program& program, const std::string& type,
                  std::initializer_list<const char*> options, const char* why) {
  for (const char* option : options)
    check_usage(!program.has(option), "--", option, " has no use with ", type, ", ", why,
                "; leave it out");
}

TokenizerFile read_named(const Program& program, const std::string& type) {
  bool gpt2 = type == "HFGPT2Tokenizer";
  check_no_use(program, type, {"merge-file", "train-tokenizer", "tokenizer-path"},
               gpt2 ? "whose --vocab-file is a directory with vocab.json and merges.txt"
                    : "whose --vocab-file is a file of ranks");
  if (!gpt2)
    return {type,
            need(program, "vocab-file", "tiktoken's ranks, such as cl100k_base.tiktoken", ""),
            {}};
  std::string folder =
      need(program, "vocab-file", "the directory of vocab.json and merges.txt", "");
  return {"GPT2BPETokenizer", folder + "/vocab.json", folder + "/merges.txt"};
}

// A file that rank 0 is yet to train or fetch is not looked for: file systems that remember for a
// while what is not there (NFS) would hide it from the other ranks afterwards.
bool is_folder(const std::string& vocab) {
  return !vocab.ends_with(".json") && fs::is_directory(vocab);
}

TokenizerFile read_tokenizer(const Program& program, const PrepareDefaults& defaults) {
  bool merges = program.has("merge-file");
  std::string type =
      Tokenizer::same_type(program.given<std::string>("tokenizer-type")
                               .value_or(merges ? "GPT2BPETokenizer" : "HFTokenizer"));
  check_tokenizer_type(type);
  check_usage(!(program.has("tokenizer-path") && program.has("vocab-file")),
              "--tokenizer-path and --vocab-file exclude each other");
  if (!Tokenizer::reads_files(type)) {
    check_no_use(program, type, {"vocab-file", "merge-file", "train-tokenizer"},
                 "whose entries are the bytes");
    return {.type = type, .vocab = {}, .merges = {}};
  }
  if (Tokenizer::is_sentencepiece(type)) {
    check_no_use(program, type, {"merge-file", "train-tokenizer", "tokenizer-path"},
                 "whose --vocab-file is a tokenizer.model");
    return {type, need(program, "vocab-file", "SentencePiece's tokenizer.model", ""), {}};
  }
  if (Tokenizer::is_tiktoken(type) || type == "HFGPT2Tokenizer") return read_named(program, type);
  if (type == "HFTokenizer") {
    check_usage(!merges,
                "--merge-file has no use with HFTokenizer, whose --vocab-file is a "
                "tokenizer.json; leave it out, or say --tokenizer-type GPT2BPETokenizer");
    if (auto folder = program.given<std::string>("tokenizer-path"))
      return {type, *folder + "/tokenizer.json", {}};
    std::string vocab = need(program, "vocab-file", "the tokenizer.json", defaults.vocab);
    return {type, is_folder(vocab) ? vocab + "/tokenizer.json" : vocab, {}};
  }
  return {type,
          need(program, "vocab-file", "the vocab.json of GPT2BPETokenizer", defaults.gpt2_vocab),
          need(program, "merge-file", "the merges.txt of GPT2BPETokenizer", defaults.gpt2_merges)};
}

DocumentRules::InvalidUtf8 read_invalid_utf8(const Program& program) {
  using Invalid = DocumentRules::InvalidUtf8;
  auto text = program.get<std::string>("invalid-utf8");
  static const std::map<std::string, Invalid> kNames = {
      {"replace", Invalid::kReplace}, {"skip", Invalid::kSkip}, {"fail", Invalid::kFail}};
  check_usage(kNames.contains(text), "--invalid-utf8 ", text, " is none of replace, skip, fail");
  return kNames.at(text);
}

DocumentRules read_rules(const Program& program, const PrepareDefaults& defaults) {
  DocumentRules rules;
  rules.keys = program.get<std::vector<std::string>>("jsonl-keys");
  if (program.args()["jsonl-keys"].defaulted() && !defaults.keys.empty())
    rules.keys = defaults.keys;
  check_usage(std::ranges::count(rules.keys, "") == 0,
              "--jsonl-keys has an empty key; is it a variable that is not set?");
  std::set<std::string> different(rules.keys.begin(), rules.keys.end());
  check_usage(different.size() == rules.keys.size(),
              "--jsonl-keys names a key twice: ", join(rules.keys, " "));
  rules.separator = program.given<std::string>("split-on").value_or(defaults.separator);
  check_usage(!program.has("split-on") || !trim(rules.separator).empty(),
              "--split-on wants the line that parts documents, such as %");
  rules.invalid_utf8 = read_invalid_utf8(program);
  if (program.has("skip-bad-lines")) rules.bad_lines = DocumentRules::BadLines::kSkip;
  return rules;
}

void check_prefix(const std::string& prefix) {
  check_usage(!prefix.ends_with('/'), "--output-prefix ", prefix,
              " ends in a slash; give a directory and the beginning of a name, such as ", prefix,
              "corpus");
}

int read_workers(const Program& program, const PrepareDefaults& defaults) {
  int workers = program.given<int>("workers").value_or(defaults.workers > 0 ? defaults.workers
                                                                            : cpu_counts().allowed);
  check_usage(workers >= 1 && workers <= 4096, "--workers ", workers, " is not in 1 .. 4096");
  return workers;
}

// The options that the output depends on, given or by default, as lines of text.
std::string describe_options(const Program& program) {
  // Where files come from does not count either: the files themselves do.
  static const std::set<std::string> kOthers = {
      "workers", "overwrite-tokenizer", "offline",    "downloads",
      "mirror",  "force-redownload",    "local-copy", "corpora"};
  std::string text;
  for (const auto& [name, option] : program.args()) {
    auto same = [&, n = std::string_view(name)](const Foreign& one) { return one.name == n; };
    if (kOthers.contains(name) || std::ranges::any_of(kNoEffect, same)) continue;
    const boost::any& value = option.value();
    text += name;
    if (auto one = boost::any_cast<std::string>(&value))
      text += " " + *one;
    else if (auto many = boost::any_cast<std::vector<std::string>>(&value))
      text += " " + join(*many, " ");
    else if (auto number = boost::any_cast<int64_t>(&value))
      text += concat(" ", *number);
    else if (auto small = boost::any_cast<int>(&value))
      text += concat(" ", *small);
    else if (auto real = boost::any_cast<double>(&value))
      text += concat(" ", *real);
    else if (auto flag = boost::any_cast<bool>(&value))
      text += concat(" ", *flag);
    else
      check(value.empty(), "--", name, " has a value of a type that is not told apart");
    text += "\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> canonical_arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> canonical;
  for (const std::string& argument : arguments) {
    size_t end = argument.starts_with("--") ? std::min(argument.find('='), argument.size()) : 0;
    std::string name = argument.substr(0, end);
    std::replace(name.begin(), name.end(), '_', '-');
    if (auto other = kOtherSpellings.find(name); other != kOtherSpellings.end())
      name = other->second;
    canonical.push_back(name + argument.substr(end));
  }
  return canonical;
}

Program prepare_program() {
  Program program({.name = "neox-prepare-data",
                   .summary = "Tokenizes text into the .bin and .idx files that training reads.",
                   .usage = "CORPUS [options], or --input PATH... --output-prefix PREFIX [options]",
                   .description = kDescription,
                   .examples = kExamples});
  auto add = program.options().add_options();
  add("input", texts("PATH...")->multitoken(),
      "files, directories, patterns ('data/*.jsonl.zst'), also as a list separated by commas");
  add("exclude", texts("PATTERN...")->multitoken(),
      "leave out what directories, patterns and archives have by such names ('*.json' vendor), or "
      "paths ('tests/*')");
  add("output-prefix", text("PREFIX"), "path and first part of the names of the output");
  add("jsonl-keys", texts("KEY...")->multitoken()->default_value({"text"}, "text"),
      "keys of the JSON objects; each gives a dataset");
  add("split-on", text("LINE"), "part text files into documents at lines that equal this");
  add("max-documents", number("N"), "stop after so many documents");
  add("skip-bad-lines", "leave out and count lines that are not JSON or lack the key");
  add("invalid-utf8", text("HOW")->default_value("replace"),
      "documents with bytes that are not UTF-8: replace these, skip the documents, or fail");
  add("tokenizer-type,t", text("TYPE"),
      "HFTokenizer, GPT2BPETokenizer (by default where --merge-file is given), SPMTokenizer, "
      "Llama2Tokenizer, TiktokenTokenizer, HFGPT2Tokenizer or CharLevelTokenizer");
  add("vocab-file,v", text("FILE"),
      "tokenizer.json, GPT-2's vocab.json, tokenizer.model, or tiktoken's ranks");
  add("merge-file,m", text("FILE"), "GPT-2's merges.txt");
  add("append-eod",
      "end each document with <|endoftext|>, or else the tokenizer's own end of text");
  add("tokenizer-path", text("DIR"), "the tokenizer.json and tokenizer_config.json in there");
  add("train-tokenizer", number("N"),
      "train a byte-level BPE of N entries on the input first, and write it to --vocab-file");
  add("overwrite-tokenizer", "let --train-tokenizer replace an existing file");
  add("workers", po::value<int>()->value_name("N"),
      "threads of each task that tokenize (all cores, or the task's share of them)");
  add("dataset-impl", text("mmap")->default_value("mmap"), "mmap, the only one");
  add_foreign(program);
  add_label_options(program);
  return program;
}

PrepareOptions read_prepare_options(const Program& program, const PrepareDefaults& defaults) {
  refuse_unsupported(program);
  PrepareOptions options;
  options.inputs = program.given<std::vector<std::string>>("input").value_or(defaults.inputs);
  check_usage(!options.inputs.empty(),
              "--input is missing: files or directories to read, or the name of a corpus. See "
              "neox-prepare-data --help.");
  options.exclude = program.list("exclude");
  options.output_prefix = need(program, "output-prefix", "path and first part of the output names",
                               defaults.output_prefix);
  check_prefix(options.output_prefix);
  options.rules = read_rules(program, defaults);
  options.tokenizer = read_tokenizer(program, defaults);
  read_label_options(program, options);
  options.end_of_document = defaults.end_of_document;
  if (program.has("append-eod")) options.end_of_document = PrepareOptions::EndOfDocument::kAppend;
  options.max_documents = program.given<int64_t>("max-documents");
  check_usage(options.max_documents.value_or(1) > 0, "--max-documents ",
              options.max_documents.value_or(1), " is not positive");
  options.workers = read_workers(program, defaults);
  options.train_vocab = program.given<int64_t>("train-tokenizer");
  check_usage(options.train_vocab || !program.has("overwrite-tokenizer"),
              "--overwrite-tokenizer goes with --train-tokenizer; leave it out");
  if (program.has("overwrite-tokenizer"))
    options.existing_tokenizer = PrepareOptions::Existing::kReplace;
  options.identity = describe_options(program);
  for (const Foreign& one : kNoEffect)
    if (program.has(one.name)) log_info("--", one.name, " has no effect here: ", one.why);
  return options;
}

}  // namespace neox
