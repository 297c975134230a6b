// PyTorch files with random damage: each is read, or refused with an error, and memory stays
// bounded. NEOX_MUTATIONS: how many files are tried, 400 without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/memory.h"
#include "torchfile_dump.h"
#include "torchfile_files.h"

namespace neox::torchfile {
namespace {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // One to four changes.
  std::string mutate(std::string bytes) {
    constexpr void (Mutator::*kChanges[])(std::string&) = {
        &Mutator::flip, &Mutator::flip,          &Mutator::cut,
        &Mutator::swap, &Mutator::huge,          &Mutator::change_size,
        &Mutator::copy, &Mutator::change_pickle, &Mutator::change_pickle};
    for (size_t n = 1 + below(4); n > 0 && !bytes.empty(); --n)
      (this->*kChanges[below(std::size(kChanges))])(bytes);
    return bytes;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  void flip(std::string& bytes) { bytes[below(bytes.size())] = static_cast<char>(below(256)); }
  void cut(std::string& bytes) {
    size_t at = below(bytes.size());
    bytes.erase(at, below(2) ? std::string::npos : 1 + below(100));
  }
  void copy(std::string& bytes) {
    std::string part = bytes.substr(below(bytes.size()), 1 + below(200));
    bytes.insert(below(bytes.size()), part);
  }
  // Two ranges of equal length, as records that changed places.
  void swap(std::string& bytes) {
    size_t n = std::min<size_t>(1 + below(100), bytes.size() / 2);
    size_t a = below(bytes.size() - n + 1), b = below(bytes.size() - n + 1);
    for (size_t i = 0; i < n; ++i) std::swap(bytes[a + i], bytes[b + i]);
  }
  void huge(std::string& bytes) {
    constexpr uint64_t kNumbers[] = {~0ull,      1ull << 63, 0x7fffffffffffffff,
                                     0xffffffff, 0x7fffffff, 0x10000,
                                     0xffff,     0,          1ull << 40};
    uint64_t number = kNumbers[below(std::size(kNumbers))];
    size_t n = size_t{1} << below(4);
    if (bytes.size() < n) return;
    std::memcpy(&bytes[below(bytes.size() - n + 1)], &number, n);
  }
  // Behind a signature of the zip format, where its sizes and offsets are.
  void change_size(std::string& bytes) {
    constexpr const char* kSignatures[] = {"PK\1\2", "PK\3\4", "PK\5\6", "PK\6\6", "PK\6\7"};
    size_t at = bytes.find(kSignatures[below(std::size(kSignatures))], below(bytes.size()));
    if (at == std::string::npos) return;
    bytes[std::min(bytes.size() - 1, at + 4 + below(52))] = static_cast<char>(below(256));
  }
  // Operations of the pickle, which lies in front.
  void change_pickle(std::string& bytes) {
    constexpr std::string_view kOperations =
        "(.0129NJKMGXTUBC]})tleauqrhjcRbQ\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90"
        "\x91\x92\x93\x94\x95\x96";
    size_t end = std::min(bytes.find("PK\1\2"), bytes.size());
    if (end == 0) return;
    bytes[below(std::min<size_t>(end, 3000))] = kOperations[below(kOperations.size())];
  }

  std::mt19937_64 random_;
};

TEST(Damaged, FilesAreReadOrRefused) {
  const char* wanted = std::getenv("NEOX_MUTATIONS");
  int64_t count = wanted ? std::atoll(wanted) : 400, read_well = 0;
  int64_t before = peak_memory();
  for (int64_t i = 0; i < count; ++i) {
    const Golden& from = goldens()[static_cast<size_t>(i) % goldens().size()];
    std::string changed = Mutator(static_cast<uint64_t>(i)).mutate(from.bytes);
    std::vector<char> exact(changed.begin(), changed.end());  // what lies behind is not ours
    try {
      std::span all = std::as_bytes(std::span(exact));
      TorchFile file(all, "damaged.pt");
      EXPECT_FALSE(json_of(file.root()).is_discarded());
      damaged_records(all);
      ++read_well;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::kIo) << i << ": " << error.what();
    }
  }
  EXPECT_GT(read_well, count / 100);
  EXPECT_LT(read_well, count - count / 100);
  EXPECT_LT(peak_memory() - before, 500'000'000);
}

}  // namespace
}  // namespace neox::torchfile
