#include "prepare/preparation.h"

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/text.h"
#include "prepare/document_encoder.h"
#include "prepare/encoded_block.h"
#include "prepare/pipeline.h"
#include "prepare/share.h"
#include "prepare/together.h"

namespace neox {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetPart, lead, documents, tokens)

namespace {

using Json = nlohmann::json;

void warn_of_loss(const Tokenizer& tokenizer, const fs::path& vocab) {
  if (std::string loss = tokenizer.loss(); !loss.empty())
    log_warning(vocab.string(), ": ", loss, ", as with Hugging Face's tokenizers");
}

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
    // Whether a text is left out shows only where all of it is there.
    bool whole = options.rules.invalid_utf8 == DocumentRules::InvalidUtf8::kSkip;
    if (encoder_.takes_parts() && !whole) blocks_.texts = BlockRules::Texts::kParts;
    blocks_.threads = options.workers;
    blocks_.columns = options.rules.members();
    blocks_.exclude = options.exclude;
    // Where there are labels, which go down to -100, both are int32: so GPT-NeoX's tools do it.
    type_ = encoder_.has_labels() ? TokenType::kInt32 : token_type_of(tokenizer.vocab_size());
    plan_ = plan_datasets(options, type_);
    if (rank_ == 0 && options_.chat)
      warn_of_split_markers(options_.chat->style, tokenizer_, options_.tokenizer.vocab);
    if (rank_ == 0) warn_of_loss(tokenizer, options_.tokenizer.vocab);
    share_ = std::make_unique<Share>(options_, plan_, control.rank(), control.size());
    result_.vocab = tokenizer.vocab_size();
  }

  PrepareResult run() try {
    open();
    std::vector<std::string> tallies = tokenize_all();
    settle(tallies);
    check_input();
    join_parts();
    if (progress_) progress_->finish();
    return result_;
  } catch (...) {
    bool kept = share_->keep_for_later();
    if (rank_ > 0 || changed_) throw;
    progress_.reset();
    if (!share_->opened() && !options_.train_vocab) throw;  // another run may have what is there
    if (kept)
      log_info("what is tokenized is kept beside the output, in ", options_.output_prefix,
               "*.tmp-*: the same command goes on there; without these files it begins afresh");
    else
      log_info("nothing of the data is kept: the same command begins anew",
               options_.train_vocab ? ", with the tokenizer that is trained" : "");
    throw;
  }

 private:
  // The files and the place where to begin. Rank 0 looks what decides the output.
  void open() {
    std::vector<std::string> said = work_together(
        control_, {.work = [&](const std::atomic<bool>&) {
          return rank_ > 0 ? "" : Json(identity_of(options_, input_, control_.size())).dump();
        }});
    auto identity = Json::parse(said[0]).get<RunIdentity>();
    said = work_together(control_, {.work = [&](const std::atomic<bool>&) {
                           share_->open(identity);
                           return Json(share_->point().input_bytes).dump();
                         }});
    for (const std::string& bytes : said) result_.resumed_bytes += std::stoll(bytes);
    if (rank_ > 0) return;
    for (const DatasetPlan& data : plan_)
      if (fs::exists(data.prefix + ".bin") || fs::exists(data.prefix + ".idx"))
        log_info(data.prefix,
                 ".{bin,idx} are there; they are replaced once the new ones are whole");
    if (result_.resumed_bytes > 0)
      log_info("goes on where a run was interrupted: ", bytes_of(result_.resumed_bytes), " of ",
               bytes_of(input_.bytes), " of input are done");
    progress_ = std::make_unique<Progress>(Progress::Options{
        .label = "tokenize", .unit = "B", .total = input_.bytes, .start = result_.resumed_bytes});
  }

  static std::string bytes_of(int64_t bytes) {
    return concat(human_bytes(static_cast<double>(bytes)), " (", with_commas(bytes), " bytes)");
  }

  std::vector<std::string> tokenize_all() {
    HeldSignals held;
    std::vector<std::string> tallies = work_together(
        control_, {.work = [&](const std::atomic<bool>& stop) { return tokenize(stop); },
                   .progress = [&] { return how_far(); },
                   .heard = [&](std::span<const std::string> ranks) { hear(ranks); }});
    HeldSignals::check();
    return tallies;
  }

  std::string tokenize(const std::atomic<bool>& stop) {
    std::vector<Slice> slices = slices_of(input_, blocks_, control_.rank(), control_.size());
    share_->tally().share = !slices.empty();
    if (options_.max_documents) hear_documents(0);
    show_point();
    if (!share_->point().finished) {
      read(slices, stop);
      if (!stop) share_->finish();
    }
    return all_done();
  }

  // What the share still wants.
  void read(const std::vector<Slice>& slices, const std::atomic<bool>& stop) {
    BlockReader reader(slices, blocks_, share_->point().place);
    int64_t in_flight = 4 * (options_.workers + 1) * BlockReader::kBlockBytes;
    EncodingRules rules{options_.rules, encoder_, type_, tokenizer_.vocab_size(), blocks_.texts};
    OrderedPipeline<Block, EncodedBlock> pipeline(
        {.read = [&] { return reader.next(); },
         .size = [](const Block& block) { return static_cast<int64_t>(block.text.size()); },
         .work = [&](const Block& block, EncodedBlock& e) { encode_block(block, rules, e); },
         .write =
             [&](const Block& block, const EncodedBlock& e) {
               bool more = share_->add(block, e);
               HeldSignals::check();
               show_point();
               return more && !stop;
             }},
        options_.workers, in_flight);
    pipeline.run();
  }

  void show_point() {
    read_bytes_ = share_->point().input_bytes;
    documents_ = share_->point().tally.documents;
    tokens_ = share_->num_tokens();
    show();
  }

  std::string how_far() const {
    return Json{
        {"bytes", read_bytes_.load()}, {"documents", documents_.load()}, {"tokens", tokens_.load()}}
        .dump();
  }

  std::string all_done() const {
    Json said = Json::parse(how_far());
    said["tally"] = share_->point().tally;
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
    hear_documents(before);
    other_bytes_ = bytes;
    other_documents_ = documents;
    other_tokens_ = tokens;
    show();
  }

  // That the shares before have so many, so far.
  void hear_documents(int64_t before) {
    if (options_.max_documents) share_->set_limit(*options_.max_documents - before);
  }

  void show() {
    if (!progress_) return;
    int64_t documents = documents_ + other_documents_, tokens = tokens_ + other_tokens_;
    progress_->update(
        read_bytes_ + other_bytes_,
        concat(with_commas(documents), documents == 1 ? " document, " : " documents, ",
               human_count(static_cast<double>(tokens)), tokens == 1 ? " token" : " tokens"));
  }

  // All ranks come to the same: whose error counts, and how many documents of each are kept.
  void settle(const std::vector<std::string>& texts) {
    int64_t most = options_.max_documents.value_or(INT64_MAX), before = 0;
    bool goes_on = false, too_many = false;  // the last document before; of any rank
    int64_t mine = INT64_MAX;                // to be kept of this rank's
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      auto tally = Json::parse(texts[rank])["tally"].get<Tally>();
      bool kept = before < most || (before == most && goes_on);
      bool some = kept && most - before < tally.documents;
      too_many = too_many || some;
      if (rank == rank_ && !kept) share_->drop_all();
      if (rank == rank_ && some) mine = most - before;
      before += tally.documents;
      check_io(before >= most || tally.error.empty(), tally.error);
      if (tally.share) goes_on = kept && tally.goes_on;
    }
    if (too_many) shorten(mine);
  }

  // The rank that has the last document of all reads again up to there from a point before it.
  void shorten(int64_t documents) {
    work_together(control_, {.work = [&](const std::atomic<bool>& stop) {
                    if (documents == INT64_MAX) return std::string();
                    share_->go_back(documents);
                    share_->set_limit(documents);
                    read(slices_of(input_, blocks_, control_.rank(), control_.size()), stop);
                    share_->flush_to_disk();
                    return std::string();
                  }});
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

  // The first one whose size has changed. A time may be another one of the same content, as on file
  // systems whose nodes see it late.
  std::string resized_file() const {
    ChangedFiles changed = changed_files(input_);
    if (size_t n = changed.other_time.size(); n > 0)
      log_warning(changed.other_time[0], n > 1 ? concat(" and ", n - 1, " more") : "",
                  n > 1 ? " were" : " was",
                  " touched while the input was read; if that changed "
                  "what is in there, prepare the data again");
    return changed.other_size.empty() ? "" : changed.other_size[0];
  }

  // Of a file that was written to meanwhile some was read as it was, and some as it is, so no rank
  // may go on with what it has of it.
  void check_input() {
    std::vector<std::string> said =
        work_together(control_, {.work = [&](const std::atomic<bool>&) {
                        return rank_ > 0 ? std::string() : resized_file();
                      }});
    changed_ = !said[0].empty();
    if (!changed_) return;
    share_->forget();
    fail(
        Exit::kIo, said[0],
        " has changed while the input was read: its size is another one. Nothing is written; start "
        "again when nothing writes to it any more",
        options_.train_vocab ? ", with --overwrite-tokenizer, since the tokenizer is of what it was"
                             : "");
  }

  void join_parts() {
    Json mine{{"tally", share_->point().tally},
              {"parts", share_->parts()},
              {"marks", encoder_.found_marks()}};
    std::vector<Tally> tallies;
    bool marks = result_.resumed_bytes > 0;  // of what was done before nothing is known
    std::vector<std::vector<DatasetPart>> parts(plan_.size());  // [dataset][rank]
    for (const std::string& text :
         control_.gather(mine.dump(-1, ' ', true, Json::error_handler_t::replace))) {
      Json one = Json::parse(text);
      tallies.push_back(one["tally"].get<Tally>());
      marks = marks || one["marks"].get<bool>();
      for (size_t i = 0; i < parts.size(); ++i)
        parts[i].push_back(one["parts"][i].get<DatasetPart>());
    }
    sum_up(tallies);
    if (rank_ == 0 && !marks) log_warning(encoder_.no_marks());
    for (size_t i = 0; i < parts.size(); ++i) describe(plan_[i], parts[i]);
    work_together(control_, {.work = [&](const std::atomic<bool>&) {
                    share_->place(parts);
                    return std::string();
                  }});
    work_together(control_, {.work = [&](const std::atomic<bool>&) {
                    if (rank_ == 0) share_->publish();
                    return std::string();
                  }});
    share_->remove_rest();
  }

  void describe(const DatasetPlan& plan, std::span<const DatasetPart> parts) {
    PreparedDataset data{.prefix = plan.prefix, .holds = plan.holds};
    for (const DatasetPart& part : parts) {
      data.documents += part.documents;
      data.tokens += part.tokens;
    }
    data.bytes = data.tokens * token_bytes(plan.type);
    result_.datasets.push_back(data);
  }

  const PrepareOptions& options_;
  const InputFiles& input_;
  const Tokenizer& tokenizer_;
  const DocumentEncoder encoder_;
  Control& control_;
  const size_t rank_;
  BlockRules blocks_;
  TokenType type_ = TokenType::kUint16;
  std::vector<DatasetPlan> plan_;
  std::unique_ptr<Share> share_;
  std::unique_ptr<Progress> progress_;  // of rank 0
  PrepareResult result_;
  bool changed_ = false;  // the input
  // This rank's and the others' progress, for the thread that talks to them.
  std::atomic<int64_t> read_bytes_ = 0, documents_ = 0, tokens_ = 0;
  std::atomic<int64_t> other_bytes_ = 0, other_documents_ = 0, other_tokens_ = 0;
};

}  // namespace

PrepareResult tokenize_input(const PrepareOptions& options, const InputFiles& input,
                             const Tokenizer& tokenizer, Control& control) {
  return Preparation(options, input, tokenizer, control).run();
}

}  // namespace neox
