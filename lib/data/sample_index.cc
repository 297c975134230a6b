#include "data/sample_index.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr int64_t kMaxEntries = UINT32_MAX - 2;  // of a vector with 32-bit positions in it

double parse_share(const std::string& text, const std::string& split) {
  std::string share(trim(text));
  char* end = nullptr;
  double value = std::strtod(share.c_str(), &end);
  check_usage(!share.empty() && *end == 0 && std::isfinite(value) && value >= 0, "split '", split,
              "': '", share, "' is not a share; give up to three numbers such as 969, 30, 1");
  return value;
}

int64_t count_tokens(const UnalignedSpan<int32_t>& lengths, SequenceRange range, const Poll& poll) {
  int64_t tokens = 0;
  for (int64_t i = range.first; i < range.end; ++i) {
    tokens += lengths[i];
    if (poll && static_cast<uint64_t>(i) % kPollSteps == 0) poll();
  }
  return tokens;
}

std::vector<int32_t> order_documents(SequenceRange range, int64_t epochs, NumpyRandom& random,
                                     const Poll& poll) {
  std::vector<int32_t> documents(static_cast<size_t>(range.size() * epochs));
  auto epoch = documents.begin();
  for (int64_t e = 0; e < epochs; ++e, epoch += range.size())
    std::iota(epoch, epoch + range.size(), static_cast<int32_t>(range.first));
  random.shuffle(std::span(documents), poll);
  return documents;
}

std::vector<SampleIndex::Position> cut_samples(const UnalignedSpan<int32_t>& lengths,
                                               const std::vector<int32_t>& documents, int64_t seq,
                                               int64_t samples, const Poll& poll) {
  std::vector<SampleIndex::Position> positions;
  positions.reserve(static_cast<size_t>(samples) + 1);
  positions.push_back({0, 0});
  uint32_t document = 0;
  int64_t offset = 0;
  uint64_t steps = 0;
  while (static_cast<int64_t>(positions.size()) <= samples) {
    // seq + 1 tokens further, and one back: the last token is also the first of the next sample.
    int64_t missing = seq + 1;
    for (;;) {
      if (poll && ++steps % kPollSteps == 0) poll();
      int64_t rest = lengths[documents[document]] - offset;
      if (missing <= rest) break;
      missing -= rest;
      ++document;
      offset = 0;
    }
    offset += missing - 1;
    positions.push_back({document, static_cast<int32_t>(offset)});
  }
  return positions;
}

}  // namespace

std::array<SequenceRange, 3> split_sequences(const std::string& text, int64_t size) {
  char separator = text.find(',') == std::string::npos ? '/' : ',';
  std::vector<double> shares;
  for (const std::string& part : split(text, separator)) shares.push_back(parse_share(part, text));
  shares.resize(3);
  double sum = shares[0] + shares[1] + shares[2];
  check_usage(sum > 0, "split '", text, "': the shares of train, valid and test are all 0");
  std::array<int64_t, 4> bounds{};
  for (size_t i = 0; i < 3; ++i)
    bounds[i + 1] =
        bounds[i] + std::llrint(shares[i] / sum * static_cast<double>(size));  // half to even
  int64_t error = bounds[3] - size;
  // The error may exceed the first share of a few documents; NeoX fails there.
  for (size_t i = 1; i < 4; ++i) bounds[i] = std::max<int64_t>(0, bounds[i] - error);
  return {{{bounds[0], bounds[1]}, {bounds[1], bounds[2]}, {bounds[2], bounds[3]}}};
}

int64_t num_epochs(int64_t tokens, int64_t seq, int64_t samples) {
  return std::max<int64_t>(1, (samples * seq + 1 + tokens - 1) / tokens);
}

SampleIndex build_sample_index(const UnalignedSpan<int32_t>& lengths, const SampleRequest& request,
                               const std::string& name, const Poll& poll) {
  const SequenceRange range = request.range;
  check(range.first >= 0 && range.end <= lengths.size(), name, ": sequences ", range.first, "..",
        range.end, " of ", lengths.size());
  check_usage(request.seed >= 0 && request.seed <= UINT32_MAX, "seed ", request.seed,
              " is not in 0 .. 4294967295, as the order of the samples needs it");
  check_usage(request.seq > 0 && request.samples >= 0, name, ": ", request.samples, " samples of ",
              request.seq, " tokens");
  check_usage(range.end <= INT32_MAX, name, ": ", range.end, " documents; at most ", INT32_MAX,
              " can be put into NeoX's order");
  int64_t tokens = count_tokens(lengths, range, poll);
  check_usage(tokens > 0, name, " has ", range.size(), " documents and no tokens");
  check_usage(request.samples < kMaxEntries, name, ": ", with_commas(request.samples),
              " samples are asked, and at most ", with_commas(kMaxEntries), " can be ordered");
  int64_t epochs = num_epochs(tokens, request.seq, request.samples);
  check_usage(epochs <= kMaxEntries / range.size(), name, " has ", with_commas(tokens),
              " tokens in ", with_commas(range.size()), " documents and would be repeated ",
              with_commas(epochs), " times to give ", with_commas(request.samples), " samples of ",
              request.seq, " tokens; give more data, or train fewer iterations");
  int64_t samples = (epochs * tokens - 1) / request.seq;
  check_usage(samples < kMaxEntries, name, ": ", with_commas(samples),
              " samples cannot be ordered");
  NumpyRandom random(static_cast<uint32_t>(request.seed));
  SampleIndex index;
  index.documents = order_documents(range, epochs, random, poll);
  index.positions = cut_samples(lengths, index.documents, request.seq, samples, poll);
  index.shuffle.resize(static_cast<size_t>(samples));
  std::iota(index.shuffle.begin(), index.shuffle.end(), 0u);
  random.shuffle(std::span(index.shuffle), poll);
  return index;
}

}  // namespace neox
