#include "prepare/share.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/output_file.h"
#include "prepare/document_encoder.h"
#include "prepare/wiki_articles.h"

namespace neox {
namespace {

constexpr size_t kPoints = 64;

}  // namespace

std::vector<DatasetPlan> plan_datasets(const PrepareOptions& options, TokenType type) {
  const std::vector<std::string>& keys = options.rules.keys;
  std::vector<DatasetPlan> plans;
  auto plan = [&](Content holds, TokenType of, const auto& name_of) {
    for (size_t key = 0; key < keys.size(); ++key)
      plans.push_back(
          {options.output_prefix + "_" + name_of(keys[key]) + "_document", of, key, holds});
  };
  plan(Content::kTokens, type, [](const std::string& key) { return key; });
  if (writes_labels(options))
    plan(Content::kLabels, type, [&](const std::string& key) { return label_name(options, key); });
  if (options.rules.reward)
    plan(Content::kRewards, TokenType::kInt32,
         [](const std::string& key) { return key + "_reward"; });
  std::set<std::string> names;
  for (const DatasetPlan& data : plans)
    check_usage(names.insert(data.prefix).second, "two datasets would be ", data.prefix,
                ": that of a key, and the labels or rewards of another; rename one of the keys ",
                join(keys, ", "));
  return plans;
}

std::vector<std::string> files_of_output(const PrepareOptions& options, int ranks) {
  std::vector<std::string> files;
  for (const DatasetPlan& data : plan_datasets(options, TokenType::kInt32))
    for (const char* ending : {".bin", ".idx"}) {
      files.push_back(data.prefix + ending);
      for (int rank = 0; rank < ranks; ++rank)
        files.push_back(OutputFile::part_of(data.prefix + ending, std::to_string(rank)));
    }
  for (int rank = 0; rank < ranks; ++rank)
    for (const fs::path& path : Journal::files(options, rank)) files.push_back(path);
  return files;
}

Share::Share(const PrepareOptions& options, const std::vector<DatasetPlan>& plan, int rank,
             int ranks)
    : options_(options), plan_(plan), rank_(rank), ranks_(ranks) {}

Share::~Share() {
  if (saving_.valid()) saving_.wait();
}

void Share::open(const RunIdentity& identity) {
  journal_.emplace(options_, rank_, identity);
  auto found = journal_->find();
  auto options_of = [&](size_t i) {
    return DatasetOptions{.type = plan_[i].type,
                          .rank = rank_,
                          .from = found ? std::optional(found->states[i]) : std::nullopt};
  };
  if (found && !found->place && !found->finished) found.reset();
  for (size_t i = 0; found && i < plan_.size(); ++i)
    if (!DatasetBuilder::can_go_on(plan_[i].prefix, options_of(i))) found.reset();
  resumed_ = found.has_value();
  for (size_t i = 0; i < plan_.size(); ++i)
    builders_.push_back(std::make_unique<DatasetBuilder>(plan_[i].prefix, options_of(i)));
  opened_ = true;  // no other run has these files: what is there is ours to remove
  if (rank_ == 0) {
    for (const DatasetPlan& data : plan_) remove_parts(data.prefix, ranks_);
    remove_journals(options_, ranks_);
    remove_numbered(options_.output_prefix + kTemplates, 0);  // all ranks have read them
  }
  at_.states.resize(plan_.size());
  points_ = {at_};
  if (found)
    at_ = *found;
  else if (rank_ == 0 && options_.train_vocab)
    journal_->save(at_);  // it says that the tokenizer is the run's own, and is never missing
  else
    journal_->remove();
}

void Share::take_states() {
  at_.states.clear();
  for (const auto& builder : builders_) at_.states.push_back(builder->state());
}

bool Share::add(const Block& block, const EncodedBlock& encoded) {
  size_t documents = wanted_of(block, encoded);
  add_to_datasets(block, encoded, documents);
  count(block, encoded, documents);
  if (documents < encoded.documents.size()) return false;
  at_.tally.goes_on = !block.ends_document;
  if (wanted()) report_bad_lines(encoded);
  at_.input_bytes += block.input_bytes;
  at_.place = block.end;
  remember();
  save_if_due();
  return at_.tally.error.empty() && (wanted() || at_.tally.goes_on);
}

// Of the documents of a block: none behind the last one that is wanted, empty ones neither.
size_t Share::wanted_of(const Block& block, const EncodedBlock& encoded) const {
  int64_t limit = limit_, documents = at_.tally.documents;
  auto all = std::ssize(encoded.documents);
  if (!block.begins_document || documents + all < limit) return encoded.documents.size();
  size_t taken = 0;
  while (taken < encoded.documents.size() && documents < limit)
    documents += !encoded.documents[taken++].empty;
  return taken;
}

void Share::add_to_datasets(const Block& block, const EncodedBlock& encoded, size_t documents) {
  for (size_t i = 0; i < builders_.size(); ++i) {
    const EncodedKey& key = encoded.keys[plan_[i].key];
    if (plan_[i].holds == Content::kRewards) {
      std::vector<int32_t> rewards = key.kept_rewards(documents);
      builders_[i]->add_documents(std::as_bytes(std::span(rewards)),
                                  std::vector<int64_t>(rewards.size(), 1));
      continue;
    }
    const std::vector<std::byte>& bytes =
        plan_[i].holds == Content::kTokens ? key.tokens : key.labels;
    int64_t wanted = key.num_tokens(documents) * token_bytes(plan_[i].type);
    auto tokens = std::span(bytes).first(static_cast<size_t>(wanted));
    if (block.begins_document)
      builders_[i]->add_documents(tokens, std::span(key.lengths).first(documents));
    else
      builders_[i]->add_to_document(tokens);
  }
}

void Share::count(const Block& block, const EncodedBlock& encoded, size_t documents) {
  Tally& t = at_.tally;
  for (const EncodedDocument& document : std::span(encoded.documents).first(documents)) {
    t.text_bytes += document.text_bytes;
    if (block.begins_document) {
      document.empty ? ++t.empty : ++t.documents;
      t.last_repaired = false;
    }
    bool& known = t.documents + t.empty == 0 ? t.lead_repaired : t.last_repaired;
    if (document.repaired && !std::exchange(known, true)) ++t.repaired;
  }
}

void Share::report_bad_lines(const EncodedBlock& encoded) {
  if (!encoded.error.empty() && options_.max_documents) {
    at_.tally.error = encoded.error;  // the shares before may have enough documents
    return;
  }
  check_io(encoded.error.empty(), encoded.error);
  constexpr auto kShown = static_cast<int64_t>(kBadLinesShown);
  for (const std::string& message : encoded.replaced)
    if (replaced_shown_++ < kShown) log_warning("replaced: ", message);
  int64_t before = at_.tally.skipped, shown = before;
  for (const std::string& message : encoded.skipped_at)
    if (shown++ < kShown) log_warning("left out: ", message);
  at_.tally.skipped += encoded.skipped;
  if (before <= kShown && at_.tally.skipped > kShown)
    log_warning("more bad lines follow; they are counted");
}

// All of them would be many; every other one goes where there are too many.
void Share::remember() {
  if (!options_.max_documents || rank_ == 0 || ++blocks_ % stride_ > 0) return;
  take_states();
  points_.push_back(at_);
  if (points_.size() <= kPoints) return;
  for (size_t i = 2; i < points_.size(); i += 2) points_[i / 2] = points_[i];
  points_.resize((points_.size() + 1) / 2);
  stride_ *= 2;
}

void Share::save_if_due() {
  using Seconds = std::chrono::duration<double>;
  if (Seconds(Clock::now() - last_save_).count() < options_.save_seconds) return;
  if (saving_.valid() && saving_.wait_for(Seconds(0)) != std::future_status::ready) return;
  wait_for_save();
  last_save_ = Clock::now();
  for (auto& builder : builders_) builder->flush();
  take_states();
  saving_ = std::async(std::launch::async, [this, point = at_] {
    for (const auto& builder : builders_) builder->sync();
    journal_->save(point);
    saved_ = true;
  });
  if (options_.save_seconds == 0) wait_for_save();
}

void Share::wait_for_save() {
  if (saving_.valid()) saving_.get();
}

void Share::finish() {
  wait_for_save();
  at_.finished = true;
  take_states();
  if (ranks_ == 1) return;  // little is left to do
  flush_to_disk();
  journal_->save(at_);
  saved_ = true;
}

void Share::flush_to_disk() {
  for (auto& builder : builders_) {
    builder->flush();
    builder->sync();
  }
}

void Share::restore(const SharePoint& point) {
  at_ = point;
  for (size_t i = 0; i < builders_.size(); ++i) builders_[i]->go_back(at_.states[i]);
}

void Share::go_back(int64_t documents) {
  auto enough = [&](const SharePoint& point) { return point.tally.documents >= documents; };
  auto behind = std::find_if(points_.begin() + 1, points_.end(), enough);
  restore(*(behind - 1));
}

void Share::drop_all() { restore(points_.front()), at_.tally = {}; }

int64_t Share::num_tokens() const {
  int64_t tokens = 0;
  for (size_t i = 0; i < builders_.size(); ++i)
    if (plan_[i].holds == Content::kTokens) tokens += builders_[i]->num_tokens();
  return tokens;
}

std::vector<DatasetPart> Share::parts() const {
  std::vector<DatasetPart> parts;
  for (const auto& builder : builders_) parts.push_back(builder->part());
  return parts;
}

void Share::place(const std::vector<std::vector<DatasetPart>>& parts) {
  for (size_t i = 0; i < builders_.size(); ++i) builders_[i]->place(parts[i]);
}

void Share::publish() {
  for (auto& builder : builders_) builder->publish();
}

void Share::remove_rest() {
  journal_->remove();
  for (auto& builder : builders_) builder->discard_files();
  builders_.clear();
}

void Share::forget() {
  if (saving_.valid()) saving_.wait();
  resumed_ = saved_ = false;
  journal_->remove();
}

bool Share::keep_for_later() {
  if (saving_.valid()) saving_.wait();
  std::chrono::duration<double> age = Clock::now() - begin_;
  bool keep = resumed_ || (saved_ && age.count() >= options_.save_seconds);
  // The journal of the beginning says that the tokenizer which is there was trained by this run.
  bool trained = rank_ == 0 && options_.train_vocab;
  if (opened_ && !keep && !trained) journal_->remove();
  for (auto& builder : builders_) keep ? builder->keep_files() : builder->discard_files();
  return keep;
}

}  // namespace neox
