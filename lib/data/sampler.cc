#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "data/indexed_dataset.h"
#include "data/sample_source.h"

namespace neox {
namespace {

constexpr std::array<const char*, 3> kSplitNames = {"train", "valid", "test"};

using Datasets = std::vector<SourceDataset>;

// What a configuration says of a split with datasets of its own.
const DataSets& sets_of(const DataConfig& config, size_t split) {
  return split == 0 ? config.train : split == 1 ? config.valid : config.test;
}

bool have_equal_lengths(const IndexedDataset& x, const IndexedDataset& y) {
  auto a = x.lengths().bytes(), b = y.lengths().bytes();
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Labels lie beside the tokens, one for each.
std::shared_ptr<const IndexedDataset> open_labels(const std::string& prefix,
                                                  const IndexedDataset& text) {
  auto labels = std::make_shared<const IndexedDataset>(prefix, IndexedDataset::kAnyNumber);
  check_io(labels->num_sequences() == text.num_sequences(), labels->prefix(), ".idx has ",
           labels->num_sequences(), " sequences, but ", text.prefix(), ".idx, whose labels it ",
           "should hold, has ", text.num_sequences(), "; prepare both again together");
  if (have_equal_lengths(*labels, text)) return labels;
  for (int64_t i = 0; i < text.num_sequences(); ++i)
    check_io(labels->lengths()[i] == text.lengths()[i], labels->prefix(), ".idx: sequence ", i,
             " has ", labels->lengths()[i], " labels, but in ", text.prefix(), ".idx it has ",
             text.lengths()[i], " tokens; prepare both again together");
  return labels;
}

// A number for each document.
std::shared_ptr<const IndexedDataset> open_rewards(const std::string& prefix,
                                                   const IndexedDataset& text) {
  auto rewards = std::make_shared<const IndexedDataset>(prefix, IndexedDataset::kAnyNumber);
  check_io(rewards->num_sequences() == text.num_sequences(), rewards->prefix(), ".idx has ",
           rewards->num_sequences(), " rewards, but ", text.prefix(), ".idx, whose documents they ",
           "are for, has ", text.num_sequences(), "; prepare both again together");
  for (int64_t i = 0; i < rewards->num_sequences(); ++i)
    check_io(rewards->lengths()[i] > 0, rewards->prefix(), ".idx: document ", i,
             " has no reward; prepare it again with its text");
  bool alike = have_equal_lengths(*rewards, text);
  for (int64_t i = 0; alike && i < rewards->num_sequences(); ++i)
    check_io(rewards->lengths()[i] == 1, rewards->prefix(), ".idx: each document has as many ",
             "numbers as tokens in ", text.prefix(), ".idx, so these are tokens or labels, not ",
             "rewards; neox-prepare-data --reward-key writes those to ..._reward_document");
  return rewards;
}

void check_pairs(const IndexedDataset& chosen, const IndexedDataset& rejected) {
  check_io(chosen.num_sequences() == rejected.num_sequences(), rejected.prefix(), ".idx has ",
           rejected.num_sequences(), " sequences, but ", chosen.prefix(), ".idx, whose answers ",
           "they were rejected for, has ", chosen.num_sequences(), "; prepare both again together");
}

}  // namespace

struct Sampler::Impl {
  std::array<Datasets, 3> datasets;
  std::array<std::string, 3> names;  // "train (data/text_document)"; empty: nothing is named
  std::array<SampleSource, 3> sources;
  int64_t seq = 0;
  int32_t end_of_document = 0;
  bool mask_end_of_document = false;
  std::vector<std::string> warnings;

  std::shared_ptr<const IndexedDataset> open(const std::string& prefix, int64_t vocab);
  void open_split(const DataConfig& config, int64_t vocab);
  void open_paths(const DataConfig& config, int64_t vocab);
  void open_all(const DataConfig& config, int64_t vocab);
  void check_wanted(size_t split, int64_t wanted);
  SourceRequest request(const DataConfig& config, size_t split, int64_t wanted) const;
  const SampleSource& source(Split split) const;
  void apply_labels(const SampleSource::Piece& piece, std::span<const int64_t> tokens,
                    std::span<int64_t> labels) const;
};

std::shared_ptr<const IndexedDataset> Sampler::Impl::open(const std::string& prefix,
                                                          int64_t vocab) {
  auto data = std::make_shared<const IndexedDataset>(prefix, vocab);
  warnings.insert(warnings.end(), data->warnings().begin(), data->warnings().end());
  return data;
}

// Datasets that are cut into train, valid and test by their documents.
void Sampler::Impl::open_split(const DataConfig& config, int64_t vocab) {
  std::vector<std::string> prefixes = config.blend.paths;
  if (prefixes.empty()) prefixes = {config.data_path};
  for (const std::string& prefix : prefixes) {
    auto data = open(prefix, vocab);
    auto ranges = split_sequences(config.split, data->num_sequences(), config.order);
    for (size_t i = 0; i < 3; ++i) {
      std::string name =
          concat(kSplitNames[i], " (split '", config.split, "' of ", data->prefix(), ")");
      if (ranges[i].size() > 0) datasets[i].push_back({data, nullptr, ranges[i], name});
      if (names[i].empty() || ranges[i].size() == 0) names[i] = name;
    }
  }
  // A blend has samples of all of them.
  for (Datasets& each : datasets)
    if (each.size() != prefixes.size()) each.clear();
}

// Datasets of its own for each, which are used whole.
void Sampler::Impl::open_paths(const DataConfig& config, int64_t vocab) {
  for (size_t i = 0; i < 3; ++i) {
    const DataSets& split = sets_of(config, i);
    for (size_t k = 0; k < split.paths.size(); ++k) {
      auto labels = [&](const std::vector<std::string>& prefixes, const IndexedDataset& text) {
        return prefixes.empty() ? nullptr : open_labels(prefixes.at(k), text);
      };
      auto data = open(split.paths[k], vocab);
      SourceDataset found{.text = data,
                          .labels = labels(split.labels, *data),
                          .range = {0, data->num_sequences()},
                          .name = concat(kSplitNames[i], " (", data->prefix(), ")")};
      if (!split.rewards.empty()) found.rewards = open_rewards(split.rewards.at(k), *data);
      if (config.pairs) {
        found.rejected = open(split.rejected.at(k), vocab);
        found.rejected_labels = labels(split.rejected_labels, *found.rejected);
        check_pairs(*data, *found.rejected);
      }
      bool some = data->num_sequences() > 0;
      if (names[i].empty() || !some) names[i] = found.name;
      if (some) datasets[i].push_back(std::move(found));
    }
    if (datasets[i].size() != split.paths.size()) datasets[i].clear();
  }
}

void Sampler::Impl::open_all(const DataConfig& config, int64_t vocab) {
  bool split = !config.data_path.empty();
  bool paths =
      !(config.train.paths.empty() && config.valid.paths.empty() && config.test.paths.empty());
  check_usage(split || paths, "no data: give data_path, or train_data_paths");
  check_usage(!(split && paths),
              "data_path and the lists train_data_paths, valid_data_paths, test_data_paths exclude "
              "each other; give one or the other");
  split ? open_split(config, vocab) : open_paths(config, vocab);
}

void Sampler::Impl::check_wanted(size_t split, int64_t wanted) {
  Datasets& found = datasets[split];
  if (wanted <= 0) found.clear();
  if (wanted <= 0 || !found.empty()) return;
  std::string text = names[split].empty()
                         ? concat(kSplitNames[split], ": no dataset is named for it")
                         : names[split] + " has no documents";
  check_usage(split > 0, text, "; training needs some: change the split, or give more documents");
  warnings.push_back(text + "; it is left out");
}

SourceRequest Sampler::Impl::request(const DataConfig& config, size_t split, int64_t wanted) const {
  SourceRequest request{.seq = seq, .samples = wanted};
  const Datasets& of = datasets[split];
  bool paths = config.data_path.empty();
  request.weights = paths ? sets_of(config, split).weights : config.blend.weights;
  // GPT-NeoX blends even a single path; Megatron blends one only where data_path gives it a weight.
  request.blended =
      of.size() > 1 || (paths ? config.order == DataOrder::kNeox : !config.blend.weights.empty());
  if (config.weight_by_documents) {
    std::vector<int64_t> documents;
    for (const SourceDataset& each : of) documents.push_back(each.text->num_sequences());
    request.weights = weights_by_documents(documents, config.sampling_alpha);
  }
  return request;
}

const SampleSource& Sampler::Impl::source(Split split) const {
  const SampleSource& source = sources[static_cast<size_t>(split)];
  check(!source.empty(), "the split ", kSplitNames[static_cast<size_t>(split)], " has no samples");
  return source;
}

// labels: those of the tokens, which are the tokens or masked.
void Sampler::Impl::apply_labels(const SampleSource::Piece& piece, std::span<const int64_t> tokens,
                                 std::span<int64_t> labels) const {
  const IndexedDataset& data = *piece.labels;
  data.get(piece.sequence, piece.offset, labels);
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != tokens[i] && labels[i] != kMaskedLabel)
      fail(Exit::kIo, data.prefix(), ".bin: label ", labels[i], " at position ",
           piece.offset + static_cast<int64_t>(i), " of sequence ", piece.sequence, ", where ",
           piece.text->prefix(), " has the token ", tokens[i],
           ": a label is its token, or -100 where no loss is wanted; prepare both again together");
}

void check_datasets_exist(const Config& config) {
  for (const auto& [key, prefix] : datasets_of(config.data)) {
    try {
      check_dataset_exists(std::string(trim(prefix)));
    } catch (const Unreadable&) { throw; } catch (const Error& e) {
      fail(e.exit(), config.where(key), ": ", key, ": ", e.what());
    }
  }
}

Sampler::Sampler(const DataConfig& config, int64_t seq, int64_t vocab, int32_t end_of_document,
                 const SampleCounts& counts, const std::function<void()>& poll)
    : impl_(std::make_unique<Impl>()) {
  impl_->seq = seq;
  impl_->end_of_document = end_of_document;
  impl_->mask_end_of_document = config.eod_mask_loss;
  impl_->open_all(config, vocab);
  const int64_t wanted[] = {counts.train, counts.valid, counts.test};
  for (size_t i = 0; i < 3; ++i) impl_->check_wanted(i, wanted[i]);
  for (size_t i = 0; i < 3; ++i) {
    if (impl_->datasets[i].empty()) continue;
    impl_->sources[i] =
        SampleSource(impl_->datasets[i], impl_->request(config, i, wanted[i]), config, poll);
    const auto& found = impl_->sources[i].warnings();
    impl_->warnings.insert(impl_->warnings.end(), found.begin(), found.end());
  }
}

int64_t Sampler::samples_of_epoch(const Config& config) {
  Impl impl;
  impl.open_all(config.data, IndexedDataset::kAnyToken);
  impl.check_wanted(0, 1);
  int64_t samples = 0;
  for (const SourceDataset& each : impl.datasets[0])
    samples += (count_tokens(each.text->lengths(), each.range) - 1) / config.model.seq - 1;
  return samples;
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

bool Sampler::has(Split split) const { return !impl_->sources[static_cast<size_t>(split)].empty(); }

int64_t Sampler::size(Split split) const { return impl_->source(split).size(); }

int64_t Sampler::get(Split split, int64_t id, std::span<int64_t> tokens, std::span<float> weights,
                     Answer answer) const {
  const SampleSource& source = impl_->source(split);
  const auto seq = static_cast<size_t>(impl_->seq);
  const bool paired = source.datasets()[0].rejected != nullptr;
  check(paired || answer == Answer::kChosen, source.datasets()[0].name, " has no pairs");
  check(id >= 0 && tokens.size() == seq + 1 && weights.size() == seq, source.datasets()[0].name,
        ": sample ", id, " into ", tokens.size(), " tokens and ", weights.size(), " weights, for ",
        seq);
  std::vector<int64_t> labels;
  size_t done = 0;
  std::fill(weights.begin(), weights.end(), 1.0f);
  source.visit(id, answer, [&](const SampleSource::Piece& piece) {
    const auto n = static_cast<size_t>(piece.tokens);
    piece.text->get(piece.sequence, piece.offset, tokens.subspan(done, n));
    if (piece.labels) {
      labels.resize(n);
      impl_->apply_labels(piece, tokens.subspan(done, n), labels);
      for (size_t i = 0; i < n; ++i)  // weight t is that of predicting token t + 1
        if (labels[i] == kMaskedLabel && done + i > 0) weights[done + i - 1] = 0;
    }
    done += n;
  });
  std::fill(tokens.begin() + static_cast<ptrdiff_t>(done), tokens.end(), 0);
  for (size_t t = done > 0 ? done - 1 : 0; t < seq; ++t) weights[t] = 0;
  for (size_t t = 0; t < seq && impl_->mask_end_of_document; ++t)
    if (tokens[t] == impl_->end_of_document) weights[t] = 0;
  return static_cast<int64_t>(done);
}

bool Sampler::has_rewards(Split split) const {
  const SampleSource& source = impl_->sources[static_cast<size_t>(split)];
  return !source.empty() && source.datasets()[0].rewards;
}

double Sampler::reward(Split split, int64_t id) const { return impl_->source(split).reward(id); }

void Sampler::prefetch(Split split, int64_t id, Answer answer) const {
  impl_->source(split).visit(id, answer, [](const SampleSource::Piece& piece) {
    piece.text->prefetch(piece.sequence, piece.offset, piece.tokens);
  });
}

std::vector<double> Sampler::passes(Split split) const { return impl_->source(split).passes(); }

std::vector<Sampler::Piece> Sampler::pieces(Split split, int64_t id, Answer answer) const {
  std::vector<Piece> found;
  impl_->source(split).visit(id, answer, [&](const SampleSource::Piece& piece) {
    found.push_back({piece.text->prefix(), piece.sequence, piece.offset, piece.tokens});
  });
  return found;
}

std::string Sampler::fingerprint(Split split) const {
  return impl_->sources[static_cast<size_t>(split)].fingerprint();
}

const std::vector<std::string>& Sampler::warnings() const { return impl_->warnings; }

}  // namespace neox
