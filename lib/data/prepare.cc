#include "data/prepare.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/bpe_trainer.h"
#include "data/dataset_builder.h"
#include "data/input_files.h"
#include "data/pipeline.h"

namespace neox {
namespace {

constexpr size_t kSkippedShown = 5;  // messages about bad lines

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// A block as tokens: of each document those for each key, empty ones too.
struct Encoded {
  std::vector<std::vector<int32_t>> tokens;       // of each key, all documents joined
  std::vector<std::vector<int32_t>> counts = {};  // [document][key]
  std::vector<char> repaired = {};                // of each document
  std::vector<int64_t> text_bytes = {};           // of each document
  std::vector<std::string> skipped;
  std::string error;
};

Tokenizer load_tokenizer(const TokenizerFile& file) {
  return file.type == TokenizerFile::Type::kGpt2 ? Tokenizer::from_gpt2(file.vocab, file.merges)
                                                 : Tokenizer::from_json(file.vocab);
}

// The documents of files one by one, for the trainer.
class DocumentReader {
 public:
  DocumentReader(const InputFiles& input, const DocumentRules& rules)
      : reader_(input.files, rules.separator), rules_(rules) {}

  bool next(std::string& text) {
    while (at_ == texts_.size()) {
      auto block = reader_.next();
      if (!block) return false;
      Documents found = parse_block(*block, rules_);
      check_io(found.error.empty(), found.error);
      texts_.clear();
      at_ = 0;
      // The text of a text file is the same for all keys.
      bool json = block->file->format == InputFile::Format::kJsonLines;
      for (Document& document : found.documents)
        for (size_t key = 0; key < (json ? document.texts.size() : 1); ++key)
          texts_.push_back(std::move(document.texts[key]));
    }
    text = std::move(texts_[at_++]);
    return true;
  }

 private:
  BlockReader reader_;
  DocumentRules rules_;
  std::vector<std::string> texts_;
  size_t at_ = 0;
};

void check_not_there(const std::string& path, PrepareOptions::Existing existing) {
  check_usage(existing == PrepareOptions::Existing::kReplace || !fs::exists(path), path,
              " exists; --train-tokenizer would replace it. Leave --train-tokenizer out to use it, "
              "name another --vocab-file, or add --overwrite-tokenizer");
}

void train_tokenizer(const PrepareOptions& options, const InputFiles& input) {
  const TokenizerFile& file = options.tokenizer;
  check_not_there(file.vocab, options.existing_tokenizer);
  bool gpt2 = file.type == TokenizerFile::Type::kGpt2;
  if (gpt2) check_not_there(file.merges, options.existing_tokenizer);
  DocumentReader documents(input, options.rules);
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
  TrainedBpe trained = train_bpe({.vocab_size = *options.train_vocab,
                                  .normalizer = gpt2 ? BpeTrainerConfig::Normalizer::kNone
                                                     : BpeTrainerConfig::Normalizer::kNfc,
                                  .num_threads = options.workers,
                                  .progress = show},
                                 [&](std::string& text) { return documents.next(text); });
  auto entries = static_cast<int64_t>(trained.tokens.size());
  progress->update(entries);
  progress->finish();
  for (const std::string& path : {file.vocab, file.merges})
    if (fs::path dir = fs::path(path).parent_path(); !dir.empty()) make_directories(dir);
  gpt2 ? write_gpt2_files(file.vocab, file.merges, trained)
       : write_tokenizer_json(file.vocab, trained);
  if (entries < *options.train_vocab)
    log_warning("the input has words for ", with_commas(entries), " entries only, not ",
                with_commas(*options.train_vocab));
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const InputFiles& input, const Tokenizer& tokenizer)
      : options_(options),
        input_(input),
        tokenizer_(tokenizer),
        progress_({.label = "tokenize", .unit = "B", .total = input.bytes}) {
    for (const std::string& key : options.rules.keys) {
      std::string prefix = options.output_prefix + "_" + key + "_document";
      builders_.push_back(std::make_unique<DatasetBuilder>(prefix, tokenizer.vocab_size()));
      result_.datasets.push_back({.prefix = prefix});
    }
    result_.vocab = tokenizer.vocab_size();
  }

  PrepareResult run() {
    BlockReader reader(input_.files, options_.rules.separator);
    int64_t in_flight = 4 * (options_.workers + 1) * static_cast<int64_t>(BlockReader::kBlockBytes);
    Pipeline<Block, Encoded> pipeline(
        {.read = [&] { return reader.next(); },
         .size = [](const Block& block) { return static_cast<int64_t>(block.text.size()); },
         .work = [&](const Block& block) { return encode(block); },
         .write = [&](const Block& block, const Encoded& e) { return write(block, e); }},
        options_.workers, in_flight);
    if (wanted()) pipeline.run();
    check_io(result_.documents > 0, "no document with text in ", join(options_.inputs, ", "),
             result_.skipped ? "; all lines were bad" : "");
    finish();
    return result_;
  }

 private:
  Encoded encode(const Block& block) const {
    Documents found = parse_block(block, options_.rules);
    Encoded e{.tokens = std::vector<std::vector<int32_t>>(builders_.size()),
              .skipped = std::move(found.skipped),
              .error = std::move(found.error)};
    for (const Document& document : found.documents) {
      std::vector<int32_t> counts;
      int64_t bytes = 0;
      for (size_t key = 0; key < builders_.size(); ++key) {
        std::vector<int32_t> ids = tokenizer_.encode(document.texts[key]);
        if (!ids.empty() && options_.end_of_document == PrepareOptions::EndOfDocument::kAppend)
          ids.push_back(tokenizer_.end_of_document());
        counts.push_back(static_cast<int32_t>(ids.size()));
        bytes += static_cast<int64_t>(document.texts[key].size());
        e.tokens[key].insert(e.tokens[key].end(), ids.begin(), ids.end());
      }
      e.counts.push_back(std::move(counts));
      e.repaired.push_back(document.repaired);
      e.text_bytes.push_back(bytes);
    }
    return e;
  }

  bool wanted() const {
    return !options_.max_documents || result_.documents < *options_.max_documents;
  }

  // Returns whether more is wanted.
  bool write(const Block& block, const Encoded& e) {
    std::vector<size_t> begin(builders_.size(), 0);
    for (size_t document = 0; document < e.counts.size() && wanted(); ++document) {
      bool empty = true;
      for (size_t key = 0; key < builders_.size(); ++key) {
        auto count = static_cast<size_t>(e.counts[document][key]);
        if (count > 0)
          builders_[key]->add_document(std::span(e.tokens[key]).subspan(begin[key], count));
        begin[key] += count;
        empty = empty && count == 0;
      }
      empty ? ++result_.empty : ++result_.documents;
      result_.repaired += e.repaired[document];
      result_.text_bytes += e.text_bytes[document];
    }
    if (wanted()) report_bad_lines(e);
    read_bytes_ += static_cast<int64_t>(block.text.size());
    progress_.update(read_bytes_,
                     concat(with_commas(result_.documents), " documents, ",
                            human_count(static_cast<double>(num_tokens())), " tokens"));
    return wanted();
  }

  void report_bad_lines(const Encoded& e) {
    check_io(e.error.empty(), e.error);
    for (const std::string& message : e.skipped) {
      if (result_.skipped++ < static_cast<int64_t>(kSkippedShown))
        log_warning("left out: ", message);
      if (result_.skipped == static_cast<int64_t>(kSkippedShown) + 1)
        log_warning("more bad lines follow; they are counted");
    }
  }

  int64_t num_tokens() const {
    int64_t tokens = 0;
    for (const auto& builder : builders_) tokens += builder->num_tokens();
    return tokens;
  }

  void finish() {
    for (size_t key = 0; key < builders_.size(); ++key) {
      const DatasetBuilder& builder = *builders_[key];
      result_.datasets[key].documents = builder.num_documents();
      result_.datasets[key].tokens = builder.num_tokens();
      result_.datasets[key].bytes = builder.num_tokens() * token_bytes(builder.type());
    }
    for (auto& builder : builders_) builder->finish();
    progress_.finish();
  }

  const PrepareOptions& options_;
  const InputFiles& input_;
  const Tokenizer& tokenizer_;
  Progress progress_;
  std::vector<std::unique_ptr<DatasetBuilder>> builders_;
  PrepareResult result_;
  int64_t read_bytes_ = 0;
};

void describe_input(const InputFiles& input) {
  auto lines = std::count_if(input.files.begin(), input.files.end(), [](const InputFile& file) {
    return file.format == InputFile::Format::kJsonLines;
  });
  auto text = static_cast<int64_t>(input.files.size()) - lines;
  std::vector<std::string> parts;
  if (lines > 0) parts.push_back(concat(lines, " of JSON lines"));
  if (text > 0) parts.push_back(concat(text, " of text"));
  log_info("input: ", human_bytes(static_cast<double>(input.bytes)),
           ", files: ", join(parts, " and "));
  if (!input.left_out.empty())
    log_info("left out: ", input.left_out.size(), " binary files, such as ",
             input.left_out.front());
}

}  // namespace

PrepareResult prepare_data(const PrepareOptions& options) {
  double begin = now();
  auto separated = options.rules.separator.empty() ? Separated::kNo : Separated::kYes;
  InputFiles input = find_input_files(options.inputs, separated);
  describe_input(input);
  if (options.train_vocab) train_tokenizer(options, input);
  Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  if (options.end_of_document == PrepareOptions::EndOfDocument::kAppend)
    check_usage(tokenizer.has_end_of_document(), options.tokenizer.vocab,
                " has no token <|endoftext|>, which --append-eod wants to append; leave "
                "--append-eod out, or use another tokenizer");
  PrepareResult result = Preparation(options, input, tokenizer).run();
  result.seconds = now() - begin;
  return result;
}

std::string summary(const PrepareOptions& options, const PrepareResult& result) {
  std::string text;
  for (const PreparedDataset& data : result.datasets)
    text += concat(data.prefix, ".{bin,idx}: ", with_commas(data.documents), " documents, ",
                   with_commas(data.tokens), " tokens, ",
                   human_bytes(static_cast<double>(data.bytes)), "\n");
  text += concat(human_bytes(static_cast<double>(result.text_bytes)), " of text in ",
                 human_duration(result.seconds), ", ",
                 human_bytes(static_cast<double>(result.text_bytes) / result.seconds), "/s\n");
  if (result.empty) text += concat("left out: ", with_commas(result.empty), " empty documents\n");
  if (result.skipped) text += concat("left out: ", with_commas(result.skipped), " bad lines\n");
  if (result.repaired)
    text +=
        concat(with_commas(result.repaired),
               " documents had bytes that are not UTF-8, or lone surrogates; they were replaced\n");
  bool gpt2 = options.tokenizer.type == TokenizerFile::Type::kGpt2;
  text += "\nTo train on it, put into the configuration:\n";
  text += concat("  data_path: ", result.datasets.front().prefix,
                 "\n  tokenizer_type: ", gpt2 ? "GPT2BPETokenizer" : "HFTokenizer",
                 "\n  vocab_file: ", options.tokenizer.vocab, "\n");
  if (gpt2) text += concat("  merge_file: ", options.tokenizer.merges, "\n");
  return text;
}

}  // namespace neox
