#include "data/sample_source.h"

#include <algorithm>
#include <array>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/tasks.h"
#include "base/text.h"
#include "data/fingerprint.h"
#include "data/index_cache.h"

namespace neox {
namespace {

constexpr const char* kFolder = "index-cache";
// Smaller indices are built faster than a file is written; they are kept only where asked for.
constexpr int64_t kKeptFrom = 1 << 20;
constexpr int64_t kPollDocuments = 64;  // whose labels may have to come from a disk

const char* name_of(DataOrder order) {
  if (order == DataOrder::kNeox) return "neox";
  return order == DataOrder::kMegatron ? "megatron" : "megatron-core";
}

// Changes whenever an order does.
std::string rule_of(const SampleRequest& request) {
  const char* packing = request.packing == Packing::kPacked          ? " packed 1"
                        : request.packing == Packing::kUntilOverflow ? " pack_until_overflow 1"
                                                                     : " unpacked 1";
  return name_of(request.order) + std::string(packing) + (request.pairs ? " pairs 1" : "");
}

// Labels that are read from the first to the last while this lives; null: none.
class ReadInOrder {
 public:
  explicit ReadInOrder(const IndexedDataset* labels) : labels_(labels) {
    if (labels_) labels_->expect(MappedFile::Access::kSequential);
  }
  ReadInOrder(const ReadInOrder&) = delete;
  ~ReadInOrder() {
    if (labels_) labels_->expect(MappedFile::Access::kRandom);
  }

 private:
  const IndexedDataset* labels_;
};

// Reads little more than up to the first label that is not masked.
bool all_masked(const IndexedDataset& labels, int64_t sequence, int64_t most) {
  std::array<int64_t, 512> values;
  const int64_t wanted = std::min<int64_t>(labels.lengths()[sequence], most);
  for (int64_t at = 0; at < wanted; at += std::ssize(values)) {
    auto piece = std::span(values).first(
        static_cast<size_t>(std::min<int64_t>(wanted - at, std::ssize(values))));
    labels.get(sequence, at, piece);
    if (!std::ranges::all_of(piece, [](int64_t v) { return v == kMaskedLabel; })) return false;
  }
  return true;
}

// Fills request.left_out: the documents that GPT-NeoX passes over where samples are of whole
// documents. Returns what is to be said of them.
std::string leave_out(const SourceDataset& dataset, SampleRequest& request, bool allow_chopped,
                      const Poll& poll) {
  if (request.packing == Packing::kPacked || (allow_chopped && !dataset.labels)) return {};
  const int64_t most = request.seq + (request.packing == Packing::kUntilOverflow ? 1 : 0);
  auto long_one = [&](const IndexedDataset* text, int64_t sequence) {
    return text && !allow_chopped && text->lengths()[sequence] > request.seq + 1;
  };
  auto masked = [&](const IndexedDataset* labels, int64_t sequence) {
    return labels && all_masked(*labels, sequence, most);
  };
  const ReadInOrder labels(dataset.labels.get()), rejected_labels(dataset.rejected_labels.get());
  int64_t too_long = 0, without_label = 0;
  request.left_out.resize(static_cast<size_t>(request.range.size()));
  for (int64_t i = 0; i < request.range.size(); ++i) {
    if (i % kPollDocuments == 0) poll();
    int64_t sequence = request.range.first + i;
    bool is_long =
        long_one(dataset.text.get(), sequence) || long_one(dataset.rejected.get(), sequence);
    bool is_masked = !is_long && (masked(dataset.labels.get(), sequence) ||
                                  masked(dataset.rejected_labels.get(), sequence));
    request.left_out[static_cast<size_t>(i)] = is_long || is_masked;
    too_long += is_long;
    without_label += is_masked;
  }
  std::vector<std::string> why;
  if (too_long > 0)
    why.push_back(
        concat(too_long, " longer than seq_length ", request.seq, " (allow_chopped: false)"));
  if (without_label > 0)
    why.push_back(concat(without_label, " whose labels mask their first ", most,
                         " tokens, those of seq_length"));
  if (why.empty()) return {};
  return concat(dataset.name, ": of its ", request.range.size(),
                dataset.rejected ? " pairs" : " documents",
                " these are left out: ", join(why, ", "));
}

std::string key_of(const SampleRequest& request, const SourceDataset& dataset) {
  const UnalignedSpan<int32_t>& lengths = dataset.text->lengths();
  Fingerprint hash;
  hash.add(rule_of(request));
  hash.add(request.seq);
  hash.add(request.samples);
  hash.add(request.seed);
  hash.add(request.range.first);
  hash.add(request.range.size());
  hash.add(lengths.bytes().subspan(static_cast<size_t>(request.range.first) * sizeof(int32_t),
                                   static_cast<size_t>(request.range.size()) * sizeof(int32_t)));
  for (bool out : request.left_out) hash.add(int64_t{out});
  if (dataset.rejected) hash.add(dataset.rejected->lengths().bytes());
  return hash.hex();
}

std::vector<fs::path> directories(const DataConfig& config, const std::string& prefix,
                                  int64_t entries) {
  if (!config.cache_dir.empty()) return {config.cache_dir};
  if (entries < kKeptFrom) return {};
  std::vector<fs::path> found = {fs::path(prefix).parent_path() / kFolder};
  if (!config.cache_fallback.empty()) found.push_back(config.cache_fallback);
  return found;
}

template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}
template <class T>
std::span<const T> values_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

StoredArrays stored(const SampleIndex& index) {
  return {{bytes_of(index.documents), bytes_of(index.positions), bytes_of(index.shuffle)},
          index.memory};
}

SampleIndex index_of(const StoredArrays& from) {
  return {values_of<int32_t>(from.arrays.at(0)),
          values_of<SampleIndex::Position>(from.arrays.at(1)),
          values_of<uint32_t>(from.arrays.at(2)), from.memory};
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  for (const std::string& text : more)
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

}  // namespace

SampleSource::SampleSource(std::vector<SourceDataset> datasets, const SourceRequest& request,
                           const DataConfig& config, const Poll& poll)
    : config_(&config),
      datasets_(std::move(datasets)),
      order_(config.order),
      packing_(config.packing),
      asked_(request.samples),
      seq_(request.seq) {
  const auto n = static_cast<int64_t>(datasets_.size());
  if (!request.blended) {
    build_indices({request.samples}, poll);
    int64_t samples = indices_[0].num_samples();
    // GPT-NeoX never uses the last sample of its index.
    size_ = order_ == DataOrder::kNeox ? std::max<int64_t>(1, samples - 1) : samples;
    fingerprint_ = keys_[0];
    shares_ = {1};
  } else {
    BlendPlan plan = plan_blend(order_, request.weights, n, request.samples);
    build_indices(plan.samples, poll);
    blend(request, std::move(plan), poll);
  }
  for (size_t i = 0; i < datasets_.size(); ++i)
    check_usage(indices_[i].num_samples() > 0, datasets_[i].name, " is too short for a sample of ",
                seq_, " tokens and the one after; give more data");
  config_ = nullptr;
}

SampleRequest SampleSource::sample_request(size_t dataset, int64_t samples) const {
  const SourceDataset& d = datasets_[dataset];
  return {.range = d.range,
          .seq = seq_,
          .samples = samples,
          .seed = config_->seed,
          .order = order_,
          .packing = packing_,
          .pairs = d.rejected != nullptr};
}

void SampleSource::build_indices(const std::vector<int64_t>& samples, const Poll& poll) {
  const size_t n = datasets_.size();
  indices_.resize(n);
  keys_.resize(n);
  std::vector<std::vector<std::string>> warnings(n);
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);
  run_tasks(n, threads, poll, [&](size_t i, const Poll& task_poll) {
    const SourceDataset& d = datasets_[i];
    SampleRequest request = sample_request(i, samples[i]);
    std::string left_out = leave_out(d, request, config_->allow_chopped, task_poll);
    keys_[i] = key_of(request, d);
    auto build = [&] {
      return stored(build_sample_index(d.text->lengths(), request, d.name, task_poll));
    };
    int64_t entries = request.range.size() + std::max<int64_t>(request.samples, 0);
    IndexCache cache(directories(*config_, d.text->prefix(), entries));
    indices_[i] = index_of(cache.get(keys_[i] + ".samples", build, task_poll));
    warnings[i] = cache.warnings();
    if (!left_out.empty()) warnings[i].push_back(left_out);
  });
  for (const auto& list : warnings) append(warnings_, list);
}

void SampleSource::blend(const SourceRequest& request, BlendPlan plan, const Poll& poll) {
  int64_t sum = 0;
  for (const SampleIndex& index : indices_)
    sum += index.num_samples() - (order_ == DataOrder::kNeox ? 1 : 0);
  if (order_ == DataOrder::kNeox) plan.size = std::max<int64_t>(1, sum);
  if (plan.weights.empty()) {
    plan.size = std::min(request.samples, sum);
    for (const SampleIndex& index : indices_)
      plan.weights.push_back(static_cast<double>(index.num_samples()));
  }
  size_ = std::max<int64_t>(1, plan.size);
  double all = numpy_sum(plan.weights);
  for (double weight : plan.weights) shares_.push_back(weight / all);
  Fingerprint hash;
  hash.add("blend 1");
  hash.add(std::as_bytes(std::span(plan.weights)));
  hash.add(size_);
  std::string key = hash.hex();
  for (const std::string& each : keys_) hash.add(each);
  fingerprint_ = keys_.size() == 1 ? keys_[0] : hash.hex();
  if (datasets_.size() == 1) return;
  auto build = [&]() -> StoredArrays {
    auto built = std::make_shared<BlendIndex>(build_blend(plan.weights, size_, poll));
    return {{bytes_of(std::span<const uint16_t>(built->dataset)),
             bytes_of(std::span<const uint32_t>(built->sample))},
            built};
  };
  IndexCache cache(directories(*config_, datasets_[0].text->prefix(), size_));
  StoredArrays found = cache.get(key + ".blend", build, poll);
  blend_dataset_ = values_of<uint16_t>(found.arrays.at(0));
  blend_sample_ = values_of<uint32_t>(found.arrays.at(1));
  blend_memory_ = found.memory;
  append(warnings_, cache.warnings());
  check_draws();
}

// Megatron ends where a blend takes more samples of a dataset than it has; here they come again.
void SampleSource::check_draws() {
  if (order_ == DataOrder::kNeox) return;
  std::vector<int64_t> draws(datasets_.size());
  for (uint16_t dataset : blend_dataset_) ++draws[dataset];
  for (size_t i = 0; i < draws.size(); ++i)
    if (draws[i] > indices_[i].num_samples())
      warnings_.push_back(concat(datasets_[i].name, ": the blend takes ", draws[i],
                                 " samples of it, which has ", indices_[i].num_samples(),
                                 "; its first ones come again"));
}

std::vector<double> SampleSource::passes() const {
  std::vector<double> passes;
  for (size_t i = 0; i < datasets_.size(); ++i) {
    const SourceDataset& d = datasets_[i];
    int64_t tokens = count_tokens(d.text->lengths(), d.range);
    passes.push_back(shares_[i] * static_cast<double>(asked_ * seq_) / static_cast<double>(tokens));
  }
  return passes;
}

double SampleSource::reward(int64_t id) const {
  const Place place = this->place(id);
  const SampleIndex& index = indices_[place.dataset];
  int64_t number = 0;
  datasets_[place.dataset].rewards->get(index.documents[index.positions[place.sample].document], 0,
                                        std::span(&number, 1));
  return static_cast<double>(number);
}

SampleSource::Place SampleSource::place(int64_t id) const {
  const auto i = static_cast<size_t>(id % size_);
  const size_t dataset = blend_dataset_.empty() ? 0 : blend_dataset_[i];
  const auto number = static_cast<int64_t>(blend_sample_.empty() ? i : blend_sample_[i]);
  const SampleIndex& index = indices_[dataset];
  const int64_t samples = index.num_samples();
  // What GPT-NeoX's blends take the numbers modulo, where they are beyond the index.
  const int64_t length = order_ == DataOrder::kNeox ? std::max<int64_t>(1, samples - 1) : samples;
  auto at = [&](int64_t n) { return index.shuffle[static_cast<size_t>(n)]; };
  uint32_t sample = at(number < samples ? number : number % length);
  // The last sample lacks the document after it; GPT-NeoX takes its number modulo, too.
  if (packing_ == Packing::kUntilOverflow && sample == samples - 1)
    sample = at((samples - 1) % length);
  return {dataset, sample};
}

}  // namespace neox
