#include "data/sampler.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "data/indexed_dataset.h"
#include "data/sample_index.h"

namespace neox {
namespace {

constexpr std::array<const char*, 3> kSplitNames = {"train", "valid", "test"};
constexpr const char* kRule = "neox packed 1";  // changes whenever the order does

// Where the samples of a split come from.
struct Source {
  std::shared_ptr<const IndexedDataset> data;  // none: the split has no samples
  SampleRequest request;
  std::string name;  // "train (data/text_document)"
  SampleIndex index;
};

struct XxhDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Fingerprint {
 public:
  Fingerprint() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void add(int64_t value) { add(std::as_bytes(std::span(&value, 1))); }
  std::string hex() const {
    XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, XxhDeleter> state_;
};

// NeoX blends even a single path, and builds half a percent more than is asked.
int64_t blended_count(int64_t samples) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * 1.005));
}

void add_warnings(const IndexedDataset& data, std::vector<std::string>& warnings) {
  warnings.insert(warnings.end(), data.warnings().begin(), data.warnings().end());
}

}  // namespace

struct Sampler::Impl {
  std::array<Source, 3> sources;
  int64_t seq = 0;
  int32_t end_of_document = 0;
  bool mask_end_of_document = false;
  std::string fingerprint;
  std::vector<std::string> warnings;

  void open_split(const DataConfig& config, int64_t vocab);
  void open_paths(const DataConfig& config, int64_t vocab);
  void request(const DataConfig& config, const SampleCounts& counts, bool blended);
  void build(const std::function<void()>& poll);
  const Source& source(Split split) const;
  void read(const Source& source, uint32_t sample, std::span<int64_t> tokens) const;
};

// One dataset, cut into train, valid and test by its documents.
void Sampler::Impl::open_split(const DataConfig& config, int64_t vocab) {
  auto data = std::make_shared<const IndexedDataset>(config.data_path, vocab);
  add_warnings(*data, warnings);
  auto ranges = split_sequences(config.split, data->num_sequences());
  for (size_t i = 0; i < 3; ++i) {
    sources[i].request.range = ranges[i];
    sources[i].name =
        concat(kSplitNames[i], " (split '", config.split, "' of ", data->prefix(), ")");
    if (ranges[i].size() > 0) sources[i].data = data;
  }
}

// A dataset of its own for each.
void Sampler::Impl::open_paths(const DataConfig& config, int64_t vocab) {
  const std::vector<std::string>* paths[] = {&config.train_paths, &config.valid_paths,
                                             &config.test_paths};
  for (size_t i = 0; i < 3; ++i) {
    if (paths[i]->empty()) continue;
    check_usage(paths[i]->size() == 1, kSplitNames[i], "_data_paths names ", paths[i]->size(),
                " datasets (", join(*paths[i], ", "),
                "): blending several by weight is not supported yet; give one, or merge them");
    auto data = std::make_shared<const IndexedDataset>(paths[i]->front(), vocab);
    add_warnings(*data, warnings);
    sources[i].request.range = {0, data->num_sequences()};
    sources[i].name = concat(kSplitNames[i], " (", data->prefix(), ")");
    if (data->num_sequences() > 0) sources[i].data = data;
  }
}

void Sampler::Impl::request(const DataConfig& config, const SampleCounts& counts, bool blended) {
  const int64_t wanted[] = {counts.train, counts.valid, counts.test};
  for (size_t i = 0; i < 3; ++i) {
    Source& source = sources[i];
    if (wanted[i] > 0 && !source.data) {
      std::string text =
          concat(source.name.empty() ? concat(kSplitNames[i], ": no dataset is named for it")
                                     : source.name + " has no documents");
      check_usage(i > 0, text, "; training needs some: change the split, or give more documents");
      warnings.push_back(text + "; it is left out");
    }
    if (wanted[i] <= 0) source.data = nullptr;
    source.request.seq = seq;
    source.request.seed = config.seed;
    source.request.samples = blended ? blended_count(wanted[i]) : wanted[i];
  }
}

void Sampler::Impl::build(const std::function<void()>& poll) {
  Fingerprint hash;
  hash.add(std::as_bytes(std::span(std::string_view(kRule))));
  hash.add(seq);
  for (Source& source : sources) {
    if (!source.data) continue;
    source.index = build_sample_index(source.data->lengths(), source.request, source.name, poll);
    if (&source != &sources.front()) continue;  // evaluation may change, training goes on
    hash.add(source.request.samples);
    hash.add(source.request.seed);
    hash.add(source.request.range.first);
    hash.add(source.request.range.size());
    hash.add(source.data->lengths().bytes().subspan(
        static_cast<size_t>(source.request.range.first) * sizeof(int32_t),
        static_cast<size_t>(source.request.range.size()) * sizeof(int32_t)));
  }
  fingerprint = hash.hex();
}

const Source& Sampler::Impl::source(Split split) const {
  const Source& source = sources[static_cast<size_t>(split)];
  check(source.data != nullptr, "the split ", kSplitNames[static_cast<size_t>(split)],
        " has no samples");
  return source;
}

// tokens [seq + 1]: the rest of one document, whole documents, the head of the last.
void Sampler::Impl::read(const Source& source, uint32_t sample, std::span<int64_t> tokens) const {
  SampleIndex::Position at = source.index.positions[sample];
  for (size_t done = 0; done < tokens.size(); ++at.document, at.offset = 0) {
    int64_t document = source.index.documents[at.document];
    auto rest = static_cast<size_t>(source.data->lengths()[document] - at.offset);
    size_t taken = std::min(rest, tokens.size() - done);
    source.data->get(document, at.offset, tokens.subspan(done, taken));
    done += taken;
  }
}

Sampler::Sampler(const DataConfig& config, int64_t seq, int64_t vocab, int32_t end_of_document,
                 const SampleCounts& counts, const std::function<void()>& poll)
    : impl_(std::make_unique<Impl>()) {
  impl_->seq = seq;
  impl_->end_of_document = end_of_document;
  impl_->mask_end_of_document = config.eod_mask_loss;
  bool split = !config.data_path.empty();
  bool paths =
      !(config.train_paths.empty() && config.valid_paths.empty() && config.test_paths.empty());
  check_usage(split || paths, "no data: give data_path, or train_data_paths");
  check_usage(!(split && paths),
              "data_path and the lists train_data_paths, valid_data_paths, test_data_paths exclude "
              "each other; give one or the other");
  split ? impl_->open_split(config, vocab) : impl_->open_paths(config, vocab);
  impl_->request(config, counts, paths);
  impl_->build(poll);
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

bool Sampler::has(Split split) const {
  return impl_->sources[static_cast<size_t>(split)].data != nullptr;
}

int64_t Sampler::size(Split split) const {
  return std::max<int64_t>(1, impl_->source(split).index.num_samples() - 1);
}

void Sampler::get(Split split, int64_t id, std::span<int64_t> tokens,
                  std::span<float> weights) const {
  const Source& source = impl_->source(split);
  const auto seq = static_cast<size_t>(impl_->seq);
  check(id >= 0 && tokens.size() == seq + 1 && weights.size() == seq, source.name, ": sample ", id,
        " into ", tokens.size(), " tokens and ", weights.size(), " weights, for ", seq);
  impl_->read(source, source.index.shuffle[static_cast<size_t>(id % size(split))], tokens);
  for (size_t t = 0; t < seq; ++t)
    weights[t] = impl_->mask_end_of_document && tokens[t] == impl_->end_of_document ? 0.0f : 1.0f;
}

std::vector<Sampler::Piece> Sampler::pieces(Split split, int64_t id) const {
  const Source& source = impl_->source(split);
  SampleIndex::Position at =
      source.index.positions[source.index.shuffle[static_cast<size_t>(id % size(split))]];
  std::vector<Piece> found;
  for (int64_t missing = impl_->seq + 1; missing > 0; ++at.document, at.offset = 0) {
    int64_t sequence = source.index.documents[at.document];
    int64_t tokens = std::min(source.data->lengths()[sequence] - int64_t{at.offset}, missing);
    if (tokens > 0) found.push_back({source.data->prefix(), sequence, at.offset, tokens});
    missing -= tokens;
  }
  return found;
}

std::string Sampler::fingerprint() const { return impl_->fingerprint; }
const std::vector<std::string>& Sampler::warnings() const { return impl_->warnings; }

}  // namespace neox
