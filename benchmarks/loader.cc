// How fast samples are read in shuffled order from a large dataset, beside reading the same bytes
// with pread(), and how long the sampler takes to start. The dataset is written where it is not
// there yet: documents of 1 to 2,000 random tokens of 2 bytes.
//   loader PREFIX [gigabytes [seconds]]
// Cold: the pages of .bin are dropped first (as far as nobody else maps them) and each sample is
// asked for a batch ahead, as training does.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/program.h"
#include "data/dataset_builder.h"
#include "data/sampler.h"

namespace {

using namespace neox;
using Clock = std::chrono::steady_clock;
constexpr int64_t kSeq = 2048, kAhead = 1024, kVocab = 50304, kPlaces = 200'000;
constexpr size_t kReaders = 64;      // reads that wait for the disk at a time
constexpr double kConsumed = 1.3e6;  // tokens per second, 70M on one H200

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void write_dataset(const std::string& prefix, double bytes) {
  std::mt19937 random(1);
  std::vector<int32_t> pool(1 << 20);
  for (int32_t& token : pool) token = static_cast<int32_t>(random() % 50000);
  DatasetBuilder builder(prefix, 50257);
  for (int64_t left = static_cast<int64_t>(bytes / 2); left > 0;) {
    auto length = static_cast<size_t>(1 + random() % 2000);
    size_t at = random() % (pool.size() - length);
    builder.add_document(std::span(pool).subspan(at, length));
    left -= static_cast<int64_t>(length);
  }
  builder.finish();
}

void drop_pages(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY);
  check_io(fd >= 0, "cannot open ", path);
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Rate {
  double wall, cpu;  // tokens per second
};

struct Run {
  const Sampler& sampler;
  int64_t first;  // other samples in each run
  double seconds;
};

// Of get().
Rate read_samples(const Run& run, bool prefetch) {
  std::vector<int64_t> tokens(kSeq + 1);
  std::vector<float> weights(kSeq);
  if (prefetch)
    for (int64_t i = 0; i < kAhead; ++i) run.sampler.prefetch(Split::kTrain, run.first + i);
  auto start = Clock::now();
  const double cpu = cpu_seconds();
  int64_t n = 0;
  for (; n % 64 || seconds_since(start) < run.seconds; ++n) {
    if (prefetch) run.sampler.prefetch(Split::kTrain, run.first + n + kAhead);
    run.sampler.get(Split::kTrain, run.first + n, tokens, weights);
  }
  const auto done = static_cast<double>(n * kSeq);
  return {done / seconds_since(start), done / (cpu_seconds() - cpu)};
}

// Where the samples' bytes lie in .bin, in the order of get().
struct Place {
  int64_t position, tokens;
};
std::vector<Place> places(const Run& run, const IndexedDataset& data) {
  std::vector<Place> pieces;
  std::vector<int64_t> starts(static_cast<size_t>(data.num_sequences()));
  int64_t at = 0;
  for (int64_t i = 0; i < data.num_sequences(); ++i) {
    starts[static_cast<size_t>(i)] = at;
    at += data.lengths()[i];
  }
  for (int64_t n = 0; n < kPlaces; ++n)
    for (const auto& p : run.sampler.pieces(Split::kTrain, run.first + n))
      pieces.push_back({2 * (starts[static_cast<size_t>(p.sequence)] + p.offset), p.tokens});
  return pieces;
}

// The peer: the bytes alone, by pread() of so many threads.
Rate pread_samples(const Run& run, const std::string& prefix, size_t threads) {
  std::vector<Place> pieces = places(run, IndexedDataset(prefix));
  int fd = ::open((prefix + ".bin").c_str(), O_RDONLY);
  check_io(fd >= 0, "cannot open ", prefix, ".bin");
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  auto start = Clock::now();
  const double cpu = cpu_seconds();
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> tokens = 0;
  auto read = [&] {
    std::vector<char> buffer(2 * (kSeq + 1));
    for (size_t i; (i = next++) < pieces.size() && seconds_since(start) < run.seconds;)
      if (::pread(fd, buffer.data(), static_cast<size_t>(2 * pieces[i].tokens),
                  pieces[i].position) > 0)
        tokens += pieces[i].tokens;
  };
  {
    std::vector<std::jthread> readers;
    for (size_t i = 0; i < threads; ++i) readers.emplace_back(read);
  }
  ::close(fd);
  const auto done = static_cast<double>(tokens);
  return {done / seconds_since(start), done / (cpu_seconds() - cpu)};
}

void print(const char* what, std::vector<Rate> rates) {
  std::sort(rates.begin(), rates.end(), [](Rate a, Rate b) { return a.wall < b.wall; });
  Rate median = rates[rates.size() / 2];
  std::printf("%-25s %7.1f million tokens/s (%.1f .. %.1f) = %.0f x one H200; %.1f by CPU time\n",
              what, median.wall / 1e6, rates.front().wall / 1e6, rates.back().wall / 1e6,
              median.wall / kConsumed, median.cpu / 1e6);
}

int run(int argc, char** argv) {
  check_usage(argc > 1, "loader PREFIX [gigabytes [seconds]]");
  const std::string prefix = argv[1];
  const double gigabytes = argc > 2 ? std::strtod(argv[2], nullptr) : 20;
  const double seconds = argc > 3 ? std::strtod(argv[3], nullptr) : 2;
  if (!std::filesystem::exists(prefix + ".idx")) write_dataset(prefix, gigabytes * 1e9);
  DataConfig config;
  config.train.paths = {prefix};
  config.cache_dir = prefix + ".index";
  const int64_t samples = IndexedDataset(prefix).num_tokens() / kSeq;
  auto open = [&] { return Sampler(config, kSeq, kVocab, -1, {.train = samples}); };
  auto start = Clock::now();
  open();
  std::printf("start, index built or found  %8.3f s\n", seconds_since(start));
  start = Clock::now();
  Sampler sampler = open();
  std::printf("start, index found           %8.3f s\n", seconds_since(start));
  std::vector<Rate> cold, warm, peer, cold_peer;
  for (int round = 0; round < 5; ++round) {
    Run next{sampler, round * samples / 5, seconds};
    drop_pages(prefix + ".bin");
    cold.push_back(read_samples(next, true));
    next.seconds = seconds / 4;  // samples that were read just now
    warm.push_back(read_samples(next, false));
    peer.push_back(pread_samples(next, prefix, 1));
    Run later{sampler, round * samples / 5 + samples / 10, seconds};
    drop_pages(prefix + ".bin");
    cold_peer.push_back(pread_samples(later, prefix, kReaders));
  }
  print("cold, asked for ahead", cold);
  print("cold, pread, 64 threads", cold_peer);
  print("warm", warm);
  print("warm, pread of the bytes", peer);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return neox::run_program("loader", [&] { return run(argc, argv); });
}
