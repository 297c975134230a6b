// Builds the sample index of a large dataset, whose lengths are simulated: time and memory, beside
// the same order made by plain loops (std::mt19937, one swap after the other, one document after
// the other), which it must equal.
//   sample_index [documents [mean_length [seq [samples]]]]
// Default: 300 million documents of 1,000 tokens in samples of 2,048: 300 billion tokens.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>

#include "base/memory.h"
#include "base/program.h"
#include "base/text.h"
#include "data/pages.h"
#include "data/sample_index.h"

namespace {

using namespace neox;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// From 1 to twice the mean.
void simulate(std::span<int32_t> lengths, int64_t mean) {
  std::mt19937 random(1);
  for (int32_t& length : lengths)
    length = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(2 * mean - 1));
}

template <class T>
void plain_shuffle(std::span<T> values, NumpyRandom& random) {
  for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[random.interval(i)]);
}

// One array at a time, so that there is memory for it.
bool plain_equals(const SampleIndex& index, std::span<const int32_t> lengths, int64_t seq,
                  uint32_t seed) {
  NumpyRandom random(seed);
  bool equal = true;
  {
    std::vector<int32_t> documents(index.documents.size());
    for (size_t i = 0; i < documents.size(); ++i)
      documents[i] = static_cast<int32_t>(i % lengths.size());
    plain_shuffle(std::span(documents), random);
    equal = std::equal(documents.begin(), documents.end(), index.documents.begin());
  }
  int64_t start = 0, next = seq;
  for (size_t d = 0, k = 1; k < index.positions.size(); ++d) {
    int64_t length = lengths[static_cast<size_t>(index.documents[d])];
    for (; next < start + length && k < index.positions.size(); next += seq)
      equal &= index.positions[k++] ==
               SampleIndex::Position{static_cast<uint32_t>(d), static_cast<int32_t>(next - start)};
    start += length;
  }
  std::vector<uint32_t> shuffle(index.shuffle.size());
  std::iota(shuffle.begin(), shuffle.end(), 0u);
  plain_shuffle(std::span(shuffle), random);
  return equal && std::equal(shuffle.begin(), shuffle.end(), index.shuffle.begin());
}

int run(int argc, char** argv) {
  auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise;
  };
  const int64_t documents = argument(1, 300'000'000), mean = argument(2, 1000),
                seq = argument(3, 2048), samples = argument(4, documents * mean / seq * 99 / 100);
  Pages<int32_t> lengths(documents);
  simulate(lengths.span(), mean);
  const double before = static_cast<double>(peak_memory());
  auto start = Clock::now();
  double cpu = cpu_seconds();
  SampleIndex index =
      build_sample_index(std::span<const int32_t>(lengths.span()),
                         {.range = {0, documents}, .seq = seq, .samples = samples}, "benchmark");
  double built = seconds_since(start), built_cpu = cpu_seconds() - cpu;
  std::printf("%s documents, %s samples of %lld tokens\n",
              with_commas(static_cast<int64_t>(index.documents.size())).c_str(),
              with_commas(index.num_samples()).c_str(), static_cast<long long>(seq));
  std::printf("built       %7.2f s  %7.2f s of CPU time  peak %s, %s of it lengths\n", built,
              built_cpu, human_bytes(static_cast<double>(peak_memory())).c_str(),
              human_bytes(before).c_str());
  std::fflush(stdout);
  start = Clock::now();
  cpu = cpu_seconds();
  bool equal = plain_equals(index, lengths.span(), seq, 1234);
  double plain_cpu = cpu_seconds() - cpu;
  std::printf("plain loops %7.2f s  %7.2f s of CPU time  %s\n", seconds_since(start), plain_cpu,
              equal ? "the same order" : "ANOTHER ORDER");
  return equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return neox::run_program("sample_index", [&] { return run(argc, argv); });
}
