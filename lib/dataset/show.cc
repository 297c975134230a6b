#include "dataset/show.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/batch.h"
#include "data/indexed_dataset.h"
#include "dataset/raw_index.h"

namespace neox {
namespace {

constexpr int64_t kPieceTokens = 1 << 20;  // of a document that are in memory at once

std::string ids_of(std::span<const int64_t> tokens) {
  std::string text;
  for (int64_t token : tokens) (text += text.empty() ? "" : " ") += std::to_string(token);
  return text;
}

// Writes the text of tokens that come in any pieces. A run of labels that are masked is a dot.
class TextWriter {
 public:
  TextWriter(const Tokenizer& tokenizer, std::ostream& out) : tokenizer_(tokenizer), out_(out) {}
  void add(std::span<const int64_t> tokens);
  // Writes what is kept back.
  void finish();

 private:
  void cut_before(int32_t id);

  const Tokenizer& tokenizer_;
  std::ostream& out_;
  bool masked_ = false;  // the last token
  std::vector<int32_t> ids_;
  std::string front_;  // what decode() leaves out of ids_, as it would at the beginning of a text
};

void TextWriter::add(std::span<const int64_t> tokens) {
  for (int64_t token : tokens) {
    bool goes_on = std::exchange(masked_, token == kMaskedLabel) && masked_;
    if (masked_) {
      finish();
      if (!goes_on) out_ << "\u00b7";
      continue;
    }
    // The tokenizer has no text for ids beyond its own.
    auto id = static_cast<int32_t>(std::min<int64_t>(token, INT32_MAX));
    if (std::ssize(ids_) >= kPieceTokens) cut_before(id);
    ids_.push_back(id);
  }
}

// Where a character begins, the text of what is before does not depend on what follows.
void TextWriter::cut_before(int32_t id) {
  std::string bytes = tokenizer_.token_bytes(id), left = bytes;
  if (bytes.empty() || continues_character(bytes[0])) return;
  if (tokenizer_.strip_begin(id, left)) return;  // and would leave out more of the next token
  finish();
  front_ = bytes.substr(0, bytes.size() - left.size());
}

void TextWriter::finish() {
  if (!ids_.empty()) out_ << front_ << tokenizer_.decode(ids_, Tokenizer::Special::kKeep);
  ids_.clear();
  front_.clear();
}

void write_text(const Tokenizer& tokenizer, std::span<const int64_t> tokens, std::ostream& out) {
  TextWriter text(tokenizer, out);
  text.add(tokens);
  text.finish();
}

// "40 x 1, 1 x 0, 23 x 1".
std::string runs_of(std::span<const float> weights) {
  std::string text;
  for (size_t i = 0; i < weights.size();) {
    size_t end = i;
    while (end < weights.size() && weights[end] == weights[i]) ++end;
    text += concat(text.empty() ? "" : ", ", end - i, " x ", weights[i]);
    i = end;
  }
  return text;
}

struct Sample {
  int64_t id = 0;
  Answer answer = Answer::kChosen;
  std::vector<int64_t> tokens;
  std::vector<float> weights;
};

void show_sample(const Sampler& sampler, const Tokenizer* tokenizer, Sample& sample,
                 std::ostream& out) {
  sampler.get(Split::kTrain, sample.id, sample.tokens, sample.weights, sample.answer);
  int64_t padding = std::ssize(sample.tokens);
  for (const Sampler::Piece& piece : sampler.pieces(Split::kTrain, sample.id, sample.answer)) {
    out << "  tokens: " << piece.tokens << " of sequence " << piece.sequence << " of "
        << piece.prefix << ", from position " << piece.offset << " on\n";
    padding -= piece.tokens;
  }
  if (padding > 0) out << "  tokens: " << padding << " of padding\n";
  out << "  ids: " << ids_of(sample.tokens) << "\n  weights: " << runs_of(sample.weights) << "\n";
  if (sampler.has_rewards(Split::kTrain))
    out << "  reward: " << sampler.reward(Split::kTrain, sample.id) << "\n";
  if (!tokenizer) return;
  out << "  text:\n";
  write_text(*tokenizer, sample.tokens, out);
  out << "\n";
}

// Gives the tokens of the sequences first .. second - 1, piece by piece.
void read_pieces(const IndexedDataset& data, std::pair<int64_t, int64_t> sequences,
                 const std::function<void(std::span<const int64_t>)>& take) {
  std::vector<int64_t> piece;
  for (int64_t sequence = sequences.first; sequence < sequences.second; ++sequence) {
    int64_t length = data.lengths()[sequence];
    for (int64_t done = 0; done < length; done += std::ssize(piece)) {
      piece.resize(static_cast<size_t>(std::min(kPieceTokens, length - done)));
      data.get(sequence, done, piece);
      take(piece);
    }
  }
}

void check_request(const Config& config, const StepRequest& request) {
  auto [rank, ranks] = request.rank;
  check_usage(ranks >= 1 && rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks,
              " data ranks: they are counted from 0; give their number with --ranks (the ranks of "
              "the job, divided by pipe_parallel_size and model_parallel_size)");
  check_usage(request.step >= 1 && request.step <= config.train.iters, "step ", request.step,
              " of a run with train_iters ", config.train.iters, " (", config.where("train_iters"),
              "): steps are counted from 1");
}

Sampler open_sampler(const Config& config, const Tokenizer* tokenizer,
                     const BatchSchedule& batches) {
  int64_t vocab = config.tokenizer.padded_vocab_size.value_or(IndexedDataset::kAnyToken);
  if (tokenizer) vocab = padded_vocab(config, tokenizer->vocab_size());
  bool has_end = tokenizer && tokenizer->has_end_of_document();
  check_usage(has_end || !config.data.eod_mask_loss, config.where("eod_mask_loss"),
              ": eod_mask_loss needs a tokenizer (vocab_file) with <|endoftext|>");
  check_datasets_exist(config);
  return Sampler(config.data, config.model.seq, vocab, has_end ? tokenizer->end_of_document() : -1,
                 sample_counts(config.train, batches, samples_of_run(config, batches)));
}

}  // namespace

void show_document(const std::string& prefix, int64_t document, const Tokenizer* tokenizer,
                   std::ostream& out) {
  IndexedDataset data(prefix, tokenizer ? tokenizer->vocab_size() : IndexedDataset::kAnyToken);
  Content content = content_of(data.prefix(), data.type());
  if (content != Content::kTokens) data = IndexedDataset(prefix, IndexedDataset::kAnyNumber);
  for (const std::string& warning : data.warnings()) log_warning(warning);
  check_usage(document >= 0 && document < data.num_documents(), data.prefix(), " has ",
              data.num_documents(), " documents, counted from 0; there is no document ", document);
  int64_t first = data.documents()[document], end = data.documents()[document + 1];
  check_io(first <= end && end <= data.num_sequences(), data.prefix(), ".idx is damaged: document ",
           document, " is sequences ", first, " .. ", end, " of ", data.num_sequences());
  int64_t tokens = 0;
  for (int64_t sequence = first; sequence < end; ++sequence) tokens += data.lengths()[sequence];
  log_info("document ", document, " of ", data.prefix(), ": ", counted(end - first, "sequence"),
           ", ", with_commas(tokens), " tokens");
  if (tokenizer && content != Content::kRewards) {
    TextWriter text(*tokenizer, out);
    read_pieces(data, {first, end}, [&](std::span<const int64_t> piece) { text.add(piece); });
    return text.finish();
  }
  const char* before = "";
  read_pieces(data, {first, end}, [&](std::span<const int64_t> piece) {
    out << std::exchange(before, " ") << ids_of(piece);
  });
  out << "\n";
}

void show_step(const Config& config, const Tokenizer* tokenizer, const StepRequest& request,
               std::ostream& out) {
  check_request(config, request);
  BatchPlan full = plan_batch(config, request.rank.ranks);
  BatchSchedule batches = batch_schedule(config, full.global);
  Sampler sampler = open_sampler(config, tokenizer, batches);
  for (const std::string& warning : sampler.warnings()) log_warning(warning);
  int64_t first = batches.samples_of(request.step - 1);
  BatchPlan plan = of_size(full, batches.size_at(first), request.rank.ranks);
  out << "step " << request.step << " of " << config.train.iters << ": samples " << first << ".."
      << first + plan.global - 1 << "; data rank " << request.rank.rank << " of "
      << request.rank.ranks << ": " << plan.accumulation << " micro-batches of " << plan.micro
      << "\n";
  if (int64_t seq = length_of_step(config, request.step); seq < config.model.seq)
    out << "of each sample the first " << seq << " tokens, by curriculum_learning ("
        << config.where("curriculum_learning") << ")\n";
  auto width = static_cast<size_t>(config.model.seq);
  Sample sample{.tokens = std::vector<int64_t>(width + 1), .weights = std::vector<float>(width)};
  std::vector<std::pair<Answer, const char*>> answers = {{Answer::kChosen, ""}};
  if (config.data.pairs)
    answers = {{Answer::kChosen, ", chosen"}, {Answer::kRejected, ", rejected"}};
  for (int64_t m = 0; m < plan.accumulation; ++m) {
    SampleRun run = micro_batch(plan, request.rank, first, m);
    for (sample.id = run.first; sample.id < run.first + run.size; ++sample.id)
      for (const auto& [answer, name] : answers) {
        out << "sample " << sample.id << ", micro-batch " << m << name << "\n";
        sample.answer = answer;
        show_sample(sampler, tokenizer, sample, out);
      }
    if (run.size < plan.micro)
      out << plan.micro - run.size << " samples of micro-batch " << m
          << " fill it up and have weight 0\n";
  }
}

}  // namespace neox
