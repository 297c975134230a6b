#include "prepare/preparation.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/dataset_builder.h"
#include "prepare/document_encoder.h"
#include "prepare/pipeline.h"
#include "prepare/together.h"

namespace neox {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetPart, lead, documents, tokens)

namespace {

using Json = nlohmann::json;

constexpr size_t kSkippedShown = 5;  // messages about bad lines

// A block as tokens: of each document those for each key, empty ones too.
struct Encoded {
  std::vector<std::vector<int32_t>> tokens;       // of each key, all documents joined
  std::vector<std::vector<int32_t>> counts = {};  // [document][key]
  std::vector<char> repaired = {};                // of each document
  std::vector<int64_t> text_bytes = {};           // of each document
  std::vector<std::string> skipped;
  std::string error;
};

// What a rank has of the documents that begin in its share of the input.
struct Tally {
  int64_t documents = 0, empty = 0, skipped = 0, repaired = 0, text_bytes = 0;
  // Whether the document that goes on from the share before, and the last one, had bad bytes: one
  // that lies in several shares counts once.
  bool lead_repaired = false, last_repaired = false;
  // Whether its last document goes on in the next share, and whether it has a share at all.
  bool goes_on = false, share = true;
  std::string error;  // that ended its work, where more documents were wanted
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally, documents, empty, skipped, repaired, text_bytes,
                                   lead_repaired, last_repaired, goes_on, share, error)

// A place between documents: how much is there up to it.
struct Mark {
  Tally tally;
  std::vector<int64_t> sequences;  // of each key
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const InputFiles& input, const Tokenizer& tokenizer,
              Control& control)
      : options_(options),
        input_(input),
        tokenizer_(tokenizer),
        encoder_(options, tokenizer),
        control_(control),
        rank_(static_cast<size_t>(control.rank())) {
    blocks_.separator = options.rules.separator;
    if (encoder_.takes_parts()) blocks_.texts = BlockRules::Texts::kParts;
    for (const std::string& key : options.rules.keys)
      result_.datasets.push_back({.prefix = options.output_prefix + "_" + key + "_document"});
    result_.vocab = tokenizer.vocab_size();
  }

  PrepareResult run() {
    if (rank_ == 0)
      progress_ = std::make_unique<Progress>(
          Progress::Options{.label = "tokenize", .unit = "B", .total = input_.bytes});
    std::vector<std::string> tallies = work_together(
        control_, {.work = [&](const std::atomic<bool>& stop) { return tokenize(stop); },
                   .progress = [&] { return how_far(); },
                   .heard = [&](std::span<const std::string> ranks) { hear(ranks); }});
    settle(tallies);
    join_parts();
    if (progress_) progress_->finish();
    return result_;
  }

 private:
  std::string tokenize(const std::atomic<bool>& stop) {
    for (const PreparedDataset& data : result_.datasets)
      builders_.push_back(std::make_unique<DatasetBuilder>(data.prefix, tokenizer_.vocab_size(),
                                                           control_.rank(), options_.life));
    std::vector<Slice> slices = slices_of(input_, blocks_, control_.rank(), control_.size());
    tally_.share = !slices.empty();
    BlockReader reader(slices, blocks_);
    int64_t in_flight = 4 * (options_.workers + 1) * BlockReader::kBlockBytes;
    Pipeline<Block, Encoded> pipeline(
        {.read = [&] { return reader.next(); },
         .size = [](const Block& block) { return static_cast<int64_t>(block.text.size()); },
         .work = [&](const Block& block) { return encode(block); },
         .write = [&](const Block& block, const Encoded& e) { return write(block, e) && !stop; }},
        options_.workers, in_flight);
    pipeline.run();
    return all_done();
  }

  Encoded encode(const Block& block) const {
    Documents found = parse_block(block, options_.rules);
    auto part = block.ends_document ? DocumentEncoder::Part::kLast : DocumentEncoder::Part::kGoesOn;
    std::vector<int32_t> labels;
    size_t keys = options_.rules.keys.size();
    Encoded e{.tokens = std::vector<std::vector<int32_t>>(keys),
              .skipped = std::move(found.skipped),
              .error = std::move(found.error)};
    for (const Document& document : found.documents) {
      std::vector<int32_t> counts;
      int64_t bytes = 0;
      for (size_t key = 0; key < keys; ++key) {
        size_t before = e.tokens[key].size();
        encoder_.encode(document.texts[key], part, e.tokens[key], labels);
        counts.push_back(static_cast<int32_t>(e.tokens[key].size() - before));
        bytes += static_cast<int64_t>(document.texts[key].size());
      }
      e.counts.push_back(std::move(counts));
      e.repaired.push_back(document.repaired);
      e.text_bytes.push_back(bytes);
    }
    return e;
  }

  // As far as it is known: those of the shares before count too.
  bool wanted() const {
    return !options_.max_documents || before_ + tally_.documents < *options_.max_documents;
  }

  // Returns whether more is wanted.
  bool write(const Block& block, const Encoded& e) {
    std::vector<size_t> begin(builders_.size(), 0);
    for (size_t document = 0; document < e.counts.size(); ++document) {
      if (block.begins_document && !wanted()) return false;
      if (block.begins_document) mark();
      bool empty = true;
      for (size_t key = 0; key < builders_.size(); ++key) {
        auto count = static_cast<size_t>(e.counts[document][key]);
        auto tokens = std::span(e.tokens[key]).subspan(begin[key], count);
        if (!block.begins_document)
          builders_[key]->add_to_document(tokens);
        else if (count > 0)
          builders_[key]->add_document(tokens);
        begin[key] += count;
        empty = empty && count == 0;
      }
      count_document(block, e, document, empty);
    }
    tally_.goes_on = !block.ends_document;
    if (wanted()) report_bad_lines(e);
    read_bytes_ += static_cast<int64_t>(block.text.size());
    documents_ = tally_.documents;
    tokens_ = num_tokens();
    show();
    return tally_.error.empty() && (wanted() || tally_.goes_on);
  }

  void count_document(const Block& block, const Encoded& e, size_t document, bool empty) {
    bool repaired = e.repaired[document];
    tally_.text_bytes += e.text_bytes[document];
    if (block.begins_document) {
      empty ? ++tally_.empty : ++tally_.documents;
      tally_.last_repaired = false;
    }
    bool& known =
        tally_.documents + tally_.empty == 0 ? tally_.lead_repaired : tally_.last_repaired;
    if (repaired && !std::exchange(known, true)) ++tally_.repaired;
  }

  // Before a document begins, so that the last ones can be dropped once it is known how many
  // the shares before have.
  void mark() {
    if (!options_.max_documents || control_.rank() == 0) return;
    if (marks_.size() > static_cast<size_t>(tally_.documents)) return;  // only empty ones since
    Mark here{.tally = tally_, .sequences = {}};
    for (const auto& builder : builders_) here.sequences.push_back(builder->num_documents());
    marks_.push_back(std::move(here));
  }

  void report_bad_lines(const Encoded& e) {
    if (!e.error.empty() && options_.max_documents) {
      tally_.error = e.error;  // the shares before may have enough documents
      return;
    }
    check_io(e.error.empty(), e.error);
    for (const std::string& message : e.skipped) {
      if (tally_.skipped++ < static_cast<int64_t>(kSkippedShown))
        log_warning("left out: ", message);
      if (tally_.skipped == static_cast<int64_t>(kSkippedShown) + 1)
        log_warning("more bad lines follow; they are counted");
    }
  }

  int64_t num_tokens() const {
    int64_t tokens = 0;
    for (const auto& builder : builders_) tokens += builder->num_tokens();
    return tokens;
  }

  std::string how_far() const {
    return Json{
        {"bytes", read_bytes_.load()}, {"documents", documents_.load()}, {"tokens", tokens_.load()}}
        .dump();
  }

  std::string all_done() const {
    Json said = Json::parse(how_far());
    said["tally"] = tally_;
    return said.dump(-1, ' ', true, Json::error_handler_t::replace);
  }

  void hear(std::span<const std::string> ranks) {
    int64_t bytes = 0, documents = 0, tokens = 0, before = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == rank_) continue;
      Json said = Json::parse(ranks[rank]);
      if (rank < rank_) before += said["documents"].get<int64_t>();
      bytes += said["bytes"].get<int64_t>();
      documents += said["documents"].get<int64_t>();
      tokens += said["tokens"].get<int64_t>();
    }
    before_ = before;
    other_bytes_ = bytes;
    other_documents_ = documents;
    other_tokens_ = tokens;
    show();
  }

  void show() {
    if (!progress_) return;
    progress_->update(read_bytes_ + other_bytes_,
                      concat(with_commas(documents_ + other_documents_), " documents, ",
                             human_count(static_cast<double>(tokens_ + other_tokens_)), " tokens"));
  }

  // All ranks come to the same: whose error counts, and how many documents of each are kept.
  void settle(const std::vector<std::string>& texts) {
    int64_t most = options_.max_documents.value_or(INT64_MAX), before = 0;
    bool goes_on = false;  // the last document before
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      auto tally = Json::parse(texts[rank])["tally"].get<Tally>();
      bool kept = before < most || (before == most && goes_on);
      if (rank == rank_) kept ? keep(most - before) : drop_all();
      before += tally.documents;
      check_io(before >= most || tally.error.empty(), tally.error);
      if (tally.share) goes_on = kept && tally.goes_on;
    }
  }

  void keep(int64_t documents) {
    if (documents >= tally_.documents) return;
    const Mark& mark = marks_[static_cast<size_t>(documents)];
    for (size_t key = 0; key < builders_.size(); ++key) builders_[key]->keep(mark.sequences[key]);
    tally_ = Tally(mark.tally);
  }

  void drop_all() {
    for (auto& builder : builders_) builder->drop_all();
    tally_ = {};
  }

  // Of all ranks; a document that lies in several shares is repaired once.
  void sum_up(const std::vector<Tally>& tallies) {
    bool repaired = false;  // the document that goes on in the next share
    for (const Tally& tally : tallies) {
      result_.documents += tally.documents;
      result_.empty += tally.empty;
      result_.skipped += tally.skipped;
      result_.text_bytes += tally.text_bytes;
      result_.repaired += tally.repaired - (tally.lead_repaired && repaired);
      repaired = tally.documents > 0 ? tally.last_repaired : repaired || tally.lead_repaired;
    }
    check_io(result_.documents > 0, "no document with text in ", join(options_.inputs, ", "),
             result_.skipped ? "; all lines were bad" : "");
  }

  void join_parts() {
    Json mine{{"tally", tally_}, {"parts", Json::array()}};
    for (const auto& builder : builders_) mine["parts"].push_back(builder->part());
    std::vector<Tally> tallies;
    std::vector<std::vector<DatasetPart>> parts(builders_.size());  // [key][rank]
    for (const std::string& text : control_.gather(mine.dump())) {
      Json one = Json::parse(text);
      tallies.push_back(one["tally"].get<Tally>());
      for (size_t key = 0; key < parts.size(); ++key)
        parts[key].push_back(one["parts"][key].get<DatasetPart>());
    }
    sum_up(tallies);
    for (size_t key = 0; key < parts.size(); ++key) describe(key, parts[key]);
    work_together(control_, {.work = [&](const std::atomic<bool>&) {
                    for (size_t key = 0; key < parts.size(); ++key)
                      builders_[key]->place(parts[key]);
                    return std::string();
                  }});
    work_together(control_, {.work = [&](const std::atomic<bool>&) {
                    if (rank_ == 0)
                      for (auto& builder : builders_) builder->publish();
                    return std::string();
                  }});
  }

  void describe(size_t key, std::span<const DatasetPart> parts) {
    PreparedDataset& data = result_.datasets[key];
    for (const DatasetPart& part : parts) {
      data.documents += part.documents;
      data.tokens += part.tokens;
    }
    data.bytes = data.tokens * token_bytes(builders_[key]->type());
  }

  const PrepareOptions& options_;
  const InputFiles& input_;
  const Tokenizer& tokenizer_;
  const DocumentEncoder encoder_;
  Control& control_;
  const size_t rank_;
  BlockRules blocks_;
  std::unique_ptr<Progress> progress_;  // of rank 0
  std::vector<std::unique_ptr<DatasetBuilder>> builders_;
  PrepareResult result_;
  Tally tally_;
  std::vector<Mark> marks_;  // [n]: where n documents end
  // This rank's and the others' progress, for the thread that talks to them.
  std::atomic<int64_t> read_bytes_ = 0, documents_ = 0, tokens_ = 0;
  std::atomic<int64_t> other_bytes_ = 0, other_documents_ = 0, other_tokens_ = 0;
  std::atomic<int64_t> before_ = 0;  // documents of the shares before, so far
};

}  // namespace

PrepareResult tokenize_input(const PrepareOptions& options, const InputFiles& input,
                             const Tokenizer& tokenizer, Control& control) {
  return Preparation(options, input, tokenizer, control).run();
}

}  // namespace neox
