// The samples of one split in their order: those of a dataset, or of several in turn. Which token
// of which dataset is where in sample i; nothing of the tokens themselves. Any thread may read it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/blend.h"
#include "data/indexed_dataset.h"
#include "data/sample_index.h"
#include "data/sampler.h"

namespace neox {

struct SourceDataset {
  std::shared_ptr<const IndexedDataset> text, labels;  // labels: may be none
  SequenceRange range;
  std::string name;  // "train (data/text_document)"; begins messages
  // Of pairs: the rejected answers, sequence by sequence; else none.
  std::shared_ptr<const IndexedDataset> rejected = nullptr, rejected_labels = nullptr;
  std::shared_ptr<const IndexedDataset> rewards = nullptr;  // a number for each sequence; or none
};

struct SourceRequest {
  int64_t seq = 0, samples = 0;
  bool blended = false;         // by weights, which are:
  std::vector<double> weights;  // or none
};

class SampleSource {
 public:
  // No samples.
  SampleSource() = default;
  // Builds the indices, or finds them in the files of an earlier start. `config`: the order, the
  // packing, and where the files are.
  SampleSource(std::vector<SourceDataset> datasets, const SourceRequest& request,
               const DataConfig& config, const Poll& poll);

  bool empty() const { return datasets_.empty(); }
  const std::vector<SourceDataset>& datasets() const { return datasets_; }
  // Samples before the order repeats.
  int64_t size() const { return size_; }

  // Tokens offset .. offset + tokens - 1 of a sequence.
  struct Piece {
    const IndexedDataset *text = nullptr, *labels = nullptr;  // labels may be null
    int64_t sequence = 0, offset = 0, tokens = 0;
  };
  // visit(piece) for each in turn; together seq + 1 tokens, or fewer where the rest is padding.
  template <class Visit>
  void visit(int64_t id, Answer answer, const Visit& visit) const;

  // That of the first sequence of a sample, where there are rewards.
  double reward(int64_t id) const;

  // How often all samples that were asked for read each dataset, packed.
  std::vector<double> passes() const;

  // Of all that the order depends on: a hash.
  const std::string& fingerprint() const { return fingerprint_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Place {
    size_t dataset;
    uint32_t sample;
  };
  Place place(int64_t id) const;
  SampleRequest sample_request(size_t dataset, int64_t samples) const;
  void build_indices(const std::vector<int64_t>& samples, const Poll& poll);
  void blend(const SourceRequest& request, BlendPlan plan, const Poll& poll);
  void check_draws();

  const DataConfig* config_ = nullptr;  // while it is built
  std::vector<SourceDataset> datasets_;
  std::vector<SampleIndex> indices_;
  std::vector<std::string> keys_;  // hashes of what each index depends on
  std::vector<double> shares_;     // of each dataset in all samples; sum to 1
  std::span<const uint16_t> blend_dataset_;
  std::span<const uint32_t> blend_sample_;
  std::shared_ptr<const void> blend_memory_;
  DataOrder order_ = DataOrder::kNeox;
  Packing packing_ = Packing::kPacked;
  int64_t asked_ = 0, seq_ = 0, size_ = 0;  // samples; tokens; samples
  std::string fingerprint_;
  std::vector<std::string> warnings_;
};

template <class Visit>
void SampleSource::visit(int64_t id, Answer answer, const Visit& visit) const {
  const Place place = this->place(id);
  const SourceDataset& dataset = datasets_[place.dataset];
  const bool chosen = answer == Answer::kChosen;
  const IndexedDataset* text = (chosen ? dataset.text : dataset.rejected).get();
  const IndexedDataset* labels = (chosen ? dataset.labels : dataset.rejected_labels).get();
  const SampleIndex& index = indices_[place.dataset];
  SampleIndex::Position at = index.positions[place.sample];
  const SampleIndex::Position end = index.positions[place.sample + 1];
  int64_t missing = seq_ + 1;
  while (missing > 0 && at.document <= end.document && at.document < index.documents.size()) {
    const int64_t sequence = index.documents[at.document];
    int64_t until = text->lengths()[sequence];
    // With one token of the next sample.
    if (at.document == end.document) until = std::min<int64_t>(until, int64_t{end.offset} + 1);
    const int64_t tokens = std::min(until - at.offset, missing);
    if (tokens > 0) visit(Piece{text, labels, sequence, at.offset, tokens});
    missing -= std::max<int64_t>(tokens, 0);
    at = {at.document + 1, 0};
  }
}

}  // namespace neox
