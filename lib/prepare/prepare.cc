#include "prepare/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/output_file.h"
#include "prepare/input_files.h"
#include "prepare/journal.h"
#include "prepare/preparation.h"
#include "prepare/share.h"
#include "prepare/together.h"
#include "prepare/wiki_articles.h"
#include "tokenizer/bpe_trainer.h"

namespace neox {
namespace {

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

Tokenizer load_tokenizer(const TokenizerFile& file) {
  try {
    return Tokenizer::of_type(file.type, file.vocab, file.merges);
  } catch (const Error& e) {
    if (file.type != "HFTokenizer" && !file.gpt2()) throw;
    fail(e.exit(), e.what(), "\nExpected are ",
         file.gpt2()
             ? "GPT-2's vocab.json as --vocab-file and its merges.txt as --merge-file"
             : "a tokenizer.json of Hugging Face as --vocab-file, such as 20B_tokenizer.json, "
               "which neox-prepare-data fetches with a corpus; with --merge-file GPT-2's "
               "vocab.json; with --tokenizer-type SPMTokenizer or Llama2Tokenizer a "
               "tokenizer.model of SentencePiece; with --tokenizer-type TiktokenTokenizer ranks "
               "of tiktoken; or --train-tokenizer N, which makes a tokenizer.json");
  }
}

// The words of a long text are those of its parts.
BlockRules in_parts(const PrepareOptions& options) {
  return {.separator = options.rules.separator,
          .texts = BlockRules::Texts::kParts,
          .columns = options.rules.members(),
          .exclude = options.exclude};
}

// The documents of files one by one, long ones in parts, for the trainer: those that are prepared.
class DocumentReader {
 public:
  DocumentReader(const InputFiles& input, const PrepareOptions& options)
      : reader_(slices_of(input, in_parts(options), 0, 1), in_parts(options)),
        rules_(options.rules),
        left_(options.max_documents.value_or(INT64_MAX)) {}

  bool next(std::string& text) {
    while (at_ == texts_.size()) {
      auto block = left_ > 0 ? reader_.next() : std::nullopt;
      if (!block) return false;
      Documents found = parse_block(*block, rules_);
      texts_.clear();
      at_ = 0;
      for (const Document& document : found.documents) take(*block, document);
      check_io(found.error.empty() || left_ == 0, found.error);
    }
    text = std::move(texts_[at_++]);
    return true;
  }

 private:
  void take(const Block& block, const Document& document) {
    if (left_ == 0) return;
    // The text of a text file is the same for all keys.
    bool keys = block.file->format != InputFile::Format::kText;
    texts_.insert(texts_.end(), document.texts.begin(),
                  keys ? document.texts.end() : document.texts.begin() + 1);
    bool some = std::ranges::any_of(document.texts, [](auto text) { return !text.empty(); });
    left_ -= some && block.ends_document;
  }

  BlockReader reader_;
  DocumentRules rules_;
  int64_t left_;
  std::vector<std::string> texts_;
  size_t at_ = 0;
};

std::string json_beside(const TokenizerFile& gpt2) {
  return (fs::path(gpt2.vocab).parent_path() / "tokenizer.json").string();
}

// GPT-2's files and, beside its vocab.json, the tokenizer.json that newer libraries read; or that
// alone.
std::vector<std::string> files_of(const TokenizerFile& tokenizer) {
  if (!tokenizer.gpt2()) return {tokenizer.vocab};
  return {tokenizer.vocab, tokenizer.merges, json_beside(tokenizer)};
}

void check_not_there(const PrepareOptions& options) {
  if (options.existing_tokenizer == PrepareOptions::Existing::kReplace) return;
  std::vector<std::string> files = files_of(options.tokenizer);
  auto there = [](const std::string& path) { return fs::exists(path); };
  auto found = std::ranges::find_if(files, there);
  if (found == files.end()) return;
  for (const std::string& needed : {options.tokenizer.vocab, options.tokenizer.merges})
    check_usage(needed.empty() || there(needed), *found, " exists, and ", needed,
                " does not: it is of another tokenizer, or of one that is there in part. Name "
                "another --vocab-file, or add --overwrite-tokenizer to train all of it");
  fail(Exit::kUsage, *found,
       " exists; --train-tokenizer would replace it. Leave --train-tokenizer out to use it, "
       "name another --vocab-file, or add --overwrite-tokenizer");
}

// A file that is trained is called so until the run has noted down that it is its own.
std::string trained_part(const std::string& path) { return OutputFile::part_of(path, "0"); }

// Whether such a file is there, and may have its name.
bool waits_for_name(const std::string& path, const PrepareOptions& options) {
  bool free = options.existing_tokenizer == PrepareOptions::Existing::kReplace || !fs::exists(path);
  return !path.empty() && free && fs::exists(trained_part(path));
}

// The journal with which a run begins whose tokenizer is trained, by whatever names it lies there.
Journal first_journal(const PrepareOptions& options, const InputFiles& input, int ranks) {
  PrepareOptions as_it_lies = options;
  for (std::string* path : {&as_it_lies.tokenizer.vocab, &as_it_lies.tokenizer.merges})
    if (waits_for_name(*path, options)) *path = trained_part(*path);
  return {options, 0, identity_of(as_it_lies, input, ranks)};
}

void name_tokenizer(const PrepareOptions& options) {
  for (const std::string& path : files_of(options.tokenizer)) {
    if (!waits_for_name(path, options)) continue;
    int renamed = ::rename(trained_part(path).c_str(), path.c_str());
    check_call(renamed == 0, "rename the finished file to", path);
    sync_directory(directory_of(path));
  }
}

// In this order, so that the same command goes on with the tokenizer whenever this run is killed.
void keep_tokenizer(const PrepareOptions& options, const InputFiles& input, int ranks,
                    const TrainedBpe& trained) {
  std::vector<std::string> files = files_of(options.tokenizer);
  try {
    if (options.tokenizer.gpt2())
      write_gpt2_files(trained_part(files[0]), trained_part(files[1]), trained);
    write_tokenizer_json(trained_part(files.back()), trained);
    first_journal(options, input, ranks).save({});
  } catch (...) {
    std::error_code ignored;
    for (const std::string& path : files) fs::remove(trained_part(path), ignored);
    throw;
  }
  name_tokenizer(options);
}

void train_tokenizer(const PrepareOptions& options, const InputFiles& input, int ranks) {
  const TokenizerFile& file = options.tokenizer;
  check_usage(
      options.rules.values == DocumentRules::Values::kStrings,
      "--train-tokenizer learns from texts, and not from conversations as they lie in JSON; "
      "train it on their texts first, then leave --train-tokenizer out");
  bool gpt2 = file.gpt2();
  check_usage(!gpt2 || file.vocab != json_beside(file), file.vocab,
              " is the name of the tokenizer.json that is written beside GPT-2's files; give "
              "--vocab-file another, such as vocab.json");
  check_not_there(options);
  DocumentReader documents(input, options);
  auto progress = std::make_unique<Progress>(
      Progress::Options{.label = "count words", .unit = "B", .total = input.bytes});
  bool merging = false;
  auto show = [&](const BpeProgress& at) {
    if (at.stage == BpeProgress::Stage::kMerge && !std::exchange(merging, true)) {
      progress->finish();
      progress = std::make_unique<Progress>(
          Progress::Options{.label = "train tokenizer", .unit = "entries", .total = at.total});
    }
    progress->update(at.done);
  };
  BpeTrainerConfig config{
      .vocab_size = *options.train_vocab, .num_threads = options.workers, .progress = show};
  if (gpt2) {  // as training GPT-2's tokenizer anew
    config.special_tokens = {"<|endoftext|>"};
    config.normalizer = BpeTrainerConfig::Normalizer::kNone;
  }
  TrainedBpe trained = train_bpe(config, [&](std::string& text) { return documents.next(text); });
  auto entries = static_cast<int64_t>(trained.tokens.size());
  if (merging) progress->update(entries);
  progress->finish();
  check_not_there(options);  // another run may have made one
  keep_tokenizer(options, input, ranks, trained);
  if (entries < *options.train_vocab)
    log_warning("the input has words for ", with_commas(entries), " entries only, not ",
                with_commas(*options.train_vocab));
}

// Whether a killed run of the same options has trained the tokenizer that is there.
bool was_trained(const PrepareOptions& options, const InputFiles& input, int ranks) {
  for (const std::string& path : {options.tokenizer.vocab, options.tokenizer.merges})
    if (!path.empty() && !fs::exists(path) && !waits_for_name(path, options)) return false;
  if (!first_journal(options, input, ranks).find()) return false;
  name_tokenizer(options);
  return true;
}

// That they can be written, which is when hours of work are done. Makes their directories.
void check_output_files(const std::string& option, const std::vector<std::string>& files) {
  std::map<fs::path, int64_t> most;  // bytes of a name in a directory; -1: any number
  for (const fs::path file : files) {
    fs::path dir = directory_of(file);
    if (!most.contains(dir)) {
      make_directories(dir);
      check_call(::access(dir.c_str(), W_OK) == 0, "write into", dir);
      most[dir] = ::pathconf(dir.c_str(), _PC_NAME_MAX);
    }
    std::string name = file.filename();
    check_usage(most[dir] < 0 || std::ssize(name) <= most[dir], option, " gives a file the name ",
                name, ", which has ", name.size(), " bytes; ", dir.string(), " takes ", most[dir],
                "; choose a shorter one");
    check_io(!fs::is_directory(file), option, " has ", file.string(),
             " written, where a directory is; choose another name");
  }
}

// Most files of the output are not there yet, and most of the input are of another size.
void check_no_input(const std::string& option, const std::vector<std::string>& files,
                    const InputFiles& input) {
  for (const std::string& file : files) {
    std::error_code error;
    auto bytes = static_cast<int64_t>(fs::file_size(file, error));
    if (error) continue;
    for (const InputFile& one : input.files)
      check_usage(one.bytes != bytes || !fs::equivalent(one.path, file, error), one.path,
                  " is of the input, and ", option, " would have ", file,
                  " written in its place; choose another name");
  }
}

// What shows before a tokenizer is trained and the input is read.
void check_output(const PrepareOptions& options, const InputFiles& input, int ranks) {
  auto look = [&](const char* option, const std::vector<std::string>& files) {
    check_no_input(option, files, input);
    check_output_files(option, files);
  };
  look("--output-prefix", files_of_output(options, ranks));
  if (!options.train_vocab) return;
  // A run at work would lose its journal to the one that says whose the tokenizer is.
  std::string first = plan_datasets(options, TokenType::kInt32)[0].prefix + ".bin";
  if (fs::exists(OutputFile::part_of(first, "0")))
    OutputFile(first, "0", OutputFile::Open::kTakeOver);  // throws where it is locked
  for (const std::string& file : files_of(options.tokenizer))
    look(file == options.tokenizer.merges ? "--merge-file" : "--vocab-file",
         {file, trained_part(file),
          OutputFile::part_of(trained_part(file), std::to_string(::getpid()))});
}

// A file as text: format, packing, size and path, with a byte 0 behind it, since a path may have
// any other.
std::string pack(const std::vector<InputFile>& files) {
  std::string text;
  for (const InputFile& file : files)
    text += concat(static_cast<int>(file.format), static_cast<int>(file.packing), " ", file.bytes,
                   " ", file.path, '\0');
  return text;
}

InputFiles unpack(const std::string& text) {
  InputFiles input;
  for (const std::string& packed : split(text, '\0')) {
    if (packed.empty()) continue;
    size_t space = packed.find(' ', 3);
    int64_t bytes = std::stoll(packed.substr(3, space - 3));
    input.files.push_back({.path = packed.substr(space + 1),
                           .format = static_cast<InputFile::Format>(packed[0] - '0'),
                           .bytes = bytes,
                           .packing = static_cast<InputFile::Packing>(packed[1] - '0')});
    input.bytes += bytes;
  }
  return input;
}

// Rank 0 looks, so that all ranks have the same list.
InputFiles find_together(const PrepareOptions& options, Control& control) {
  auto separated = options.rules.separator.empty() ? Separated::kNo : Separated::kYes;
  InputFiles input;
  std::vector<std::string> said =
      work_together(control, {.work = [&](const std::atomic<bool>&) {
                      if (control.rank() > 0) return std::string();
                      input = find_input_files(options.inputs, separated,
                                               files_of(options.tokenizer), options.exclude);
                      check_output(options, input, control.size());
                      return pack(input.files);
                    }});
  return control.rank() == 0 ? input : unpack(said[0]);
}

// --split-on that has parted nothing.
void warn_of_separator(const PrepareOptions& options, const InputFiles& input,
                       const PrepareResult& result) {
  using Packing = InputFile::Packing;
  if (options.rules.separator.empty() || options.max_documents) return;
  auto may_have_several = [](const InputFile& file) {
    return file.packing != Packing::kNone && file.packing != Packing::kCompressed;
  };
  if (std::ranges::any_of(input.files, may_have_several)) return;
  int64_t texts = std::ranges::count(input.files, InputFile::Format::kText, &InputFile::format);
  if (texts == 0)
    log_warning("--split-on parts text files, of which the input has none");
  else if (texts == std::ssize(input.files) && result.documents + result.empty <= texts)
    log_warning("--split-on '", options.rules.separator, "' parts nothing: no line equals it");
}

}  // namespace

PrepareResult prepare_data(const PrepareOptions& given, Control& control) {
  double begin = now();
  PrepareOptions options = given;
  InputFiles input = find_together(options, control);
  if (control.rank() == 0) describe_input(input);
  options.rules.wiki = WikiArticles::gather(input,
                                            {.separator = options.rules.separator,
                                             .threads = options.workers,
                                             .exclude = options.exclude},
                                            options.output_prefix, control);
  if (options.train_vocab)
    work_together(control, {.work = [&](const std::atomic<bool>&) {
                    if (control.rank() == 0 && !was_trained(options, input, control.size()))
                      train_tokenizer(options, input, control.size());
                    return std::string();
                  }});
  Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  PrepareResult result = tokenize_input(options, input, tokenizer, control);
  result.seconds = now() - begin;
  if (control.rank() == 0) warn_of_separator(options, input, result);
  return result;
}

}  // namespace neox
