#include "data/sample_index.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/tasks.h"
#include "base/text.h"
#include "data/blend.h"
#include "data/pages.h"

namespace neox {
namespace {

constexpr size_t kAhead = 48;  // documents whose lengths are on their way

struct Arrays {
  Pages<int32_t> documents;
  Pages<SampleIndex::Position> positions;
  Pages<uint32_t> shuffle;
};

// How often the documents are repeated, and how many samples are shuffled among themselves.
struct Plan {
  int64_t tokens = 0, epochs = 1, samples = 0;
  int64_t first_epochs = 1, first_samples = 0;  // the rest comes last
};

// Megatron keeps the last epoch apart where less than 80 % of its samples are asked.
bool last_epoch_apart(const Plan& plan, const SampleRequest& request) {
  if (request.order == DataOrder::kNeox || plan.epochs == 1) return false;
  int64_t before = ((plan.epochs - 1) * plan.tokens - 1) / request.seq;
  int64_t of_one = (plan.tokens - 1) / request.seq;
  return request.samples - before < static_cast<int64_t>(0.80 * static_cast<double>(of_one));
}

Plan make_plan(const UnalignedSpan<int32_t>& lengths, const SampleRequest& request,
               const std::string& name, const Poll& poll) {
  const SequenceRange range = request.range;
  Plan plan;
  plan.tokens = count_tokens(lengths, range, poll);
  check_usage(plan.tokens > 0, name, " has ", range.size(), " documents and no tokens");
  if (request.samples != kOneEpoch)
    plan.epochs = num_epochs(plan.tokens, request.seq, request.samples);
  check_usage(plan.epochs <= kMaxEntries / range.size(), name, " has ", with_commas(plan.tokens),
              " tokens in ", with_commas(range.size()), " documents and would be repeated ",
              with_commas(plan.epochs), " times to give ", with_commas(request.samples),
              " samples of ", request.seq, " tokens; give more data, or train fewer iterations");
  plan.samples = (plan.epochs * plan.tokens - 1) / request.seq;
  check_usage(plan.samples < kMaxEntries, name, ": ", with_commas(plan.samples),
              " samples cannot be ordered");
  bool apart = last_epoch_apart(plan, request);
  plan.first_epochs = apart ? plan.epochs - 1 : plan.epochs;
  plan.first_samples = apart ? (plan.first_epochs * plan.tokens - 1) / request.seq : plan.samples;
  return plan;
}

void order_documents(std::span<int32_t> documents, SequenceRange range, int64_t first_epochs,
                     NumpyRandom& random, const Poll& poll) {
  const auto size = static_cast<size_t>(range.size());
  for (size_t i = 0; i < documents.size(); i += size)
    std::iota(&documents[i], &documents[i] + size, static_cast<int32_t>(range.first));
  const size_t first = size * static_cast<size_t>(first_epochs);
  random.shuffle(documents.first(first), poll);
  random.shuffle(documents.subspan(first), poll);
}

// positions[k] is where token k * seq of the joined documents lies.
void cut_samples(std::span<SampleIndex::Position> positions, const UnalignedSpan<int32_t>& lengths,
                 std::span<const int32_t> documents, int64_t seq, const Poll& poll) {
  const auto* length_bytes = lengths.bytes().data();
  positions[0] = {0, 0};
  int64_t start = 0, next = seq;  // token at which the document starts, the sample
  size_t k = 1;
  for (size_t d = 0; k < positions.size(); ++d) {
    if (d + kAhead < documents.size())
      __builtin_prefetch(length_bytes + 4 * static_cast<size_t>(documents[d + kAhead]));
    if (poll && d % kPollSteps == 0) poll();
    const int64_t end = start + lengths[documents[d]];
    for (; next < end && k < positions.size(); next += seq)
      positions[k++] = {static_cast<uint32_t>(d), static_cast<int32_t>(next - start)};
    start = end;
  }
}

void order_samples(std::span<uint32_t> shuffle, int64_t first, NumpyRandom& random,
                   const Poll& poll) {
  std::iota(shuffle.begin(), shuffle.end(), 0u);
  random.shuffle(shuffle.first(static_cast<size_t>(first)), poll);
  random.shuffle(shuffle.subspan(static_cast<size_t>(first)), poll);
}

SampleIndex build_packed(const UnalignedSpan<int32_t>& lengths, const SampleRequest& request,
                         const std::string& name, const Poll& poll) {
  const Plan plan = make_plan(lengths, request, name, poll);
  NumpyRandom random(static_cast<uint32_t>(request.seed));
  auto arrays = std::make_shared<Arrays>();
  arrays->documents = Pages<int32_t>(request.range.size() * plan.epochs);
  arrays->positions = Pages<SampleIndex::Position>(plan.samples + 1);
  arrays->shuffle = Pages<uint32_t>(plan.samples);
  auto documents = arrays->documents.span();
  order_documents(documents, request.range, plan.first_epochs, random, poll);
  // The generator goes on after the documents, and the cut does not need it.
  run_tasks(2, plan.samples < static_cast<int64_t>(kPollSteps) ? 1 : 2, poll,
            [&](size_t task, const Poll& task_poll) {
              if (task == 0)
                cut_samples(arrays->positions.span(), lengths, documents, request.seq, task_poll);
              else
                order_samples(arrays->shuffle.span(), plan.first_samples, random, task_poll);
            });
  return {documents, arrays->positions.span(), arrays->shuffle.span(), arrays};
}

}  // namespace

int64_t count_tokens(const UnalignedSpan<int32_t>& lengths, SequenceRange range, const Poll& poll) {
  int64_t tokens = 0;
  for (int64_t i = range.first; i < range.end;) {
    int64_t end = std::min(range.end, i + static_cast<int64_t>(kPollSteps));
    for (; i < end; ++i) tokens += lengths[i];
    if (poll) poll();
  }
  return tokens;
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
  check_usage(request.seq > 0 && request.samples >= kOneEpoch, name, ": ", request.samples,
              " samples of ", request.seq, " tokens");
  check_usage(range.end <= INT32_MAX, name, ": ", range.end, " documents; at most ", INT32_MAX,
              " can be put into an order");
  check_usage(request.samples < kMaxEntries, name, ": ", with_commas(request.samples),
              " samples are asked, and at most ", with_commas(kMaxEntries), " can be ordered");
  return request.packing == Packing::kPacked ? build_packed(lengths, request, name, poll)
                                             : build_whole_documents(lengths, request, name, poll);
}

}  // namespace neox
