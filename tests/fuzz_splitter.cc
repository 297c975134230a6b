// Coverage-guided: any bytes, read as text, are split alike by the bulk splitter in every
// instruction set, by the one that reads character by character, and by the regular expression
// taken at its word. Built and run by fuzz.sh with libFuzzer.
// Words: "'s" "'re" "'ve" "'ll" "  " "\xc2\xa0" "\xe3\x80\x80" "\xe2\x80\x83" "\xcc\x81"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "bpe_regex.h"
#include "tokenizer/bpe_scan.h"
#include "tokenizer/bpe_split.h"

namespace {

using namespace neox;

// A text of its own in memory, so that a read outside of it is found.
class Exact {
 public:
  explicit Exact(std::string_view text) : bytes_(new char[text.size()]), size_(text.size()) {
    std::memcpy(bytes_.get(), text.data(), text.size());
  }
  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

std::vector<size_t> by_regex(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += BpeRegex(text).match(at)) starts.push_back(at);
  return starts;
}

std::vector<size_t> one_by_one(std::string_view text) {
  std::vector<size_t> starts;
  size_t at = 0;
  for (WordSplitter words(text); !words.done(); at += words.next().size()) starts.push_back(at);
  return starts;
}

// What the regular expression finds between runs of blanks.
std::vector<size_t> with_runs(std::string_view text) {
  std::vector<size_t> starts;
  auto add = [&](size_t from, size_t to) {
    for (size_t start : by_regex(text.substr(from, to - from))) starts.push_back(from + start);
  };
  size_t done = 0;
  for (size_t at; (at = text.find("  ", done)) != text.npos;) {
    add(done, at);
    starts.push_back(at);
    done = std::min(text.find_first_not_of(' ', at), text.size());
  }
  add(done, text.size());
  return starts;
}

std::vector<size_t> in_bulk(std::string_view text, BlankRuns runs, Simd simd) {
  std::vector<size_t> starts;
  for (WordScanner scanner(text, runs, simd); !scanner.done();)
    for (uint32_t start : scanner.next()) starts.push_back(scanner.base() + start);
  return starts;
}

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "differs: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string storage;
  Exact text(unicode::repair({reinterpret_cast<const char*>(data), size}, storage));
  std::vector<size_t> words = by_regex(text.view()), cut = with_runs(text.view());
  check(one_by_one(text.view()) == words, "one by one");
  for (Simd simd : available_simd()) {
    check(in_bulk(text.view(), BlankRuns::kSplit, simd) == words, "in bulk");
    check(in_bulk(text.view(), BlankRuns::kCut, simd) == cut, "in bulk, with runs of blanks");
  }
  return 0;
}
