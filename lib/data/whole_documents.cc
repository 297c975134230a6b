// Samples of whole documents, as GPT-NeoX's gpt2_dataset.py, or pairwise_dataset.py, orders them.
// unpacked: one document each, in the order of the dataset. pack_until_overflow: shuffled
// documents, as long as they fit. What is missing is padded, what is too much is cut off, by who
// reads them.
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "data/sample_index.h"

namespace neox {
namespace {

struct Arrays {
  std::vector<int32_t> documents;
  std::vector<SampleIndex::Position> positions;
  std::vector<uint32_t> shuffle;
};

void check_some_fit(const SampleRequest& request, const UnalignedSpan<int32_t>& lengths,
                    const std::string& name) {
  const auto& left_out = request.left_out;
  bool some = false;
  for (int64_t i = 0; i < request.range.size() && !some; ++i)
    some = (left_out.empty() || !left_out[static_cast<size_t>(i)]) &&
           lengths[request.range.first + i] > 0;
  check_usage(
      some, name, ": none of its ", request.range.size(),
      " documents can be used: with seq_length ", request.seq,
      " all are empty, or longer where allow_chopped is false, or their labels mask what it takes "
      "of them");
}

// samples + 1 documents, since a sample ends with the first token of the next.
void take_in_order(Arrays& arrays, const SampleRequest& request, const Poll& poll) {
  const int64_t n = request.range.size();
  for (int64_t i = 0; std::ssize(arrays.documents) <= request.samples; i = (i + 1) % n) {
    if (poll && i % static_cast<int64_t>(kPollSteps) == 0) poll();
    if (!request.left_out.empty() && request.left_out[static_cast<size_t>(i)]) continue;
    arrays.positions.push_back({static_cast<uint32_t>(arrays.documents.size()), 0});
    arrays.documents.push_back(static_cast<int32_t>(request.range.first + i));
  }
}

void pack(Arrays& arrays, const UnalignedSpan<int32_t>& lengths, const SampleRequest& request,
          NumpyRandom& random, const Poll& poll) {
  std::vector<int32_t> order(static_cast<size_t>(request.range.size()));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span(order), poll);
  int64_t filled = 0;
  for (size_t i = 0; std::ssize(arrays.positions) < request.samples;) {
    if (poll && i % kPollSteps == 0) poll();
    const int32_t document = order[i];
    const auto here = static_cast<uint32_t>(arrays.documents.size());
    check_usage(here < kMaxEntries, "more than ", with_commas(kMaxEntries),
                " documents are needed; train fewer iterations");
    if (request.left_out.empty() || !request.left_out[static_cast<size_t>(document)]) {
      const int64_t length = lengths[request.range.first + document];
      bool opens = filled == 0 || filled + length > request.seq + 1;
      if (opens) arrays.positions.push_back({here, 0});
      filled = opens ? length : filled + length;
      arrays.documents.push_back(static_cast<int32_t>(request.range.first + document));
    }
    if (++i == order.size()) {
      i = 0;
      random.shuffle(std::span(order), poll);
    }
  }
  arrays.positions.push_back({static_cast<uint32_t>(arrays.documents.size()), 0});
}

}  // namespace

SampleIndex build_whole_documents(const UnalignedSpan<int32_t>& lengths,
                                  const SampleRequest& request, const std::string& name,
                                  const Poll& poll) {
  check(request.samples >= 0 && request.order == DataOrder::kNeox, name, ": not GPT-NeoX's");
  check_some_fit(request, lengths, name);
  auto arrays = std::make_shared<Arrays>();
  NumpyRandom random(static_cast<uint32_t>(request.seed));
  arrays->shuffle.resize(static_cast<size_t>(request.samples));
  std::iota(arrays->shuffle.begin(), arrays->shuffle.end(), 0u);
  if (request.pairs)
    for (uint32_t& sample : arrays->shuffle) sample %= static_cast<uint32_t>(request.range.size());
  random.shuffle(std::span(arrays->shuffle), poll);
  request.packing == Packing::kUnpacked ? take_in_order(*arrays, request, poll)
                                        : pack(*arrays, lengths, request, random, poll);
  return {arrays->documents, arrays->positions, arrays->shuffle, arrays};
}

}  // namespace neox
