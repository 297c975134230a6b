// The splitter in bulk against the one that reads character by character, for every instruction set
// of this CPU; and both against the regular expression, taken at its word.
#include "tokenizer/bpe_scan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "bpe_regex.h"
#include "tokenizer/bpe_split.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

using Starts = std::vector<size_t>;

class Random {
 public:
  size_t below(size_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % limit;
  }

 private:
  uint64_t state_ = 20;
};

// Texts that are dense in what the splitter decides on.
std::string random_text(Random& random, size_t parts) {
  static const std::vector<std::string> kParts = {"a",
                                                  "Z",
                                                  "the",
                                                  "7",
                                                  "!",
                                                  "'",
                                                  "''",
                                                  "'s",
                                                  "'re",
                                                  "'ll",
                                                  "'v",
                                                  "'t",
                                                  " ",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\t",
                                                  "\r\n",
                                                  "\v",
                                                  "{",
                                                  "_",
                                                  "@",
                                                  "`",
                                                  "[",
                                                  "/",
                                                  ":",
                                                  std::string(1, '\0'),
                                                  "\x1F",
                                                  "\x7F",
                                                  std::string(5, ' '),
                                                  std::string(24, ' '),
                                                  std::string(25, ' '),
                                                  std::string(70, 'x'),
                                                  "\u00E9",
                                                  "\u00A0",
                                                  "\u0085",
                                                  "\u3000",
                                                  "\u2003",
                                                  "\u1680",
                                                  "\u180E",
                                                  "\u4E2D\u6587",
                                                  "\u0663",
                                                  "\u0301",
                                                  "\U0001F642",
                                                  "\U0001D7D8",
                                                  "\U00020000",
                                                  "\u2028",
                                                  "\u200B"};
  std::string text;
  size_t kinds = 1 + random.below(kParts.size());
  size_t first = random.below(kParts.size());
  for (size_t i = 0; i < parts; ++i) text += kParts[(first + random.below(kinds)) % kParts.size()];
  return text;
}

Starts in_bulk(std::string_view text, BlankRuns runs, Simd simd) {
  // At the end of the heap block, where a sanitizer sees a read behind it.
  auto exact = std::make_unique<char[]>(text.size());
  std::memcpy(exact.get(), text.data(), text.size());
  Starts starts;
  for (WordScanner scanner({exact.get(), text.size()}, runs, simd); !scanner.done();)
    for (uint32_t start : scanner.next()) starts.push_back(scanner.base() + start);
  return starts;
}

void append_words(std::string_view text, size_t at, Starts& starts) {
  for (WordSplitter words(text); !words.done();) {
    starts.push_back(at);
    at += words.next().size();
  }
}

// Cuts runs of blanks first, as added tokens are.
Starts one_by_one(std::string_view text, BlankRuns runs) {
  Starts starts;
  size_t done = 0;
  for (size_t at = 0; runs == BlankRuns::kCut && (at = text.find("  ", at)) != text.npos;) {
    append_words(text.substr(done, at - done), done, starts);
    starts.push_back(at);
    at = done = std::min(text.find_first_not_of(' ', at), text.size());
  }
  append_words(text.substr(done), done, starts);
  return starts;
}

Starts by_regex(std::string_view text) {
  Starts starts;
  for (size_t at = 0; at < text.size(); at += BpeRegex(text).match(at)) starts.push_back(at);
  return starts;
}

std::string shown(std::string_view text) {
  std::string hex;
  for (char c : text) {
    char two[4];
    std::snprintf(two, sizeof two, "%02x", static_cast<uint8_t>(c));
    hex += two;
  }
  return hex;
}

class BpeScanTest : public testing::TestWithParam<Simd> {
 protected:
  void SetUp() override {
    auto all = available_simd();
    if (std::find(all.begin(), all.end(), GetParam()) == all.end()) GTEST_SKIP() << "not this CPU";
  }
  void expect_same(std::string_view text) const {
    for (BlankRuns runs : {BlankRuns::kSplit, BlankRuns::kCut})
      ASSERT_EQ(in_bulk(text, runs, GetParam()), one_by_one(text, runs)) << shown(text);
  }
};

std::string name_of(const testing::TestParamInfo<Simd>& info) {
  static const char* kNames[] = {"Plain", "Avx2", "Avx512", "Neon"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, BpeScanTest,
                         testing::Values(Simd::kPlain, Simd::kAvx2, Simd::kAvx512, Simd::kNeon),
                         name_of);

TEST_P(BpeScanTest, FindsThePiecesOfRandomTexts) {
  Random random;
  for (int i = 0; i < 20'000; ++i) expect_same(random_text(random, random.below(120)));
}

TEST_P(BpeScanTest, FindsThePiecesAtEveryPlaceOfABlock) {
  Random random;
  for (size_t shift = 0; shift < 2 * kScanBlock + 3; ++shift)
    for (int i = 0; i < 30; ++i)
      for (const char* filler : {"x", " ", "\n", "!", "\u4E2D"}) {
        std::string text;
        while (text.size() < shift) text += filler;
        expect_same(text + random_text(random, 4));
        expect_same(text + "'" + random_text(random, 2));
      }
}

TEST_P(BpeScanTest, KnowsEveryCodePoint) {
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    for (const char* before : {"a", "1", "!", " ", "\n"}) unicode::append(text += before, code);
    if (text.size() < 4000) continue;
    expect_same(text);
    text.clear();
  }
  expect_same(text);
}

TEST_P(BpeScanTest, GoesOnAnywhereAsAtTheBeginning) {
  Random random;
  std::string text = random_text(random, 2000);
  WordScanner scanner(text, BlankRuns::kCut, GetParam());
  for (int i = 0; i < 2000; ++i) {
    size_t at = random.below(text.size());
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    scanner.restart(at);
    Starts starts;
    for (uint32_t start : scanner.next()) starts.push_back(start);
    Starts all = one_by_one(std::string_view(text).substr(at), BlankRuns::kCut);
    ASSERT_LE(starts.size(), all.size());
    all.resize(starts.size());
    ASSERT_EQ(starts, all) << at;
  }
}

TEST(WordSplitter, FollowsTheRegularExpression) {
  Random random;
  for (int i = 0; i < 5'000; ++i) {
    std::string text = random_text(random, random.below(60));
    ASSERT_EQ(one_by_one(text, BlankRuns::kSplit), by_regex(text)) << shown(text);
  }
}

TEST(WordSplitter, FollowsTheRegularExpressionsOfLaterModels) {
  Random random;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    while (random.below(12) > 0) {
      static const char* kMore[] = {
          "\r\n", "\n", "12", "'LL", "'S", "'vE",    "'\u017F", "\t",     "\u00A0\n", "\r",
          "?",    "l",  "/",  "AB",  "Ab", "\u4E2D", "\u0301",  "\u01C5", "\u02B0"};
      text += random_text(random, random.below(3)) + kMore[random.below(std::size(kMore))];
    }
    BpeRegex regex(text);
    for (Words words :
         {Words::kCl100k, Words::kQwen2, Words::kQwen35, Words::kO200k, Words::kTekken}) {
      size_t at = 0, digits = words == Words::kCl100k || words == Words::kO200k ? 3 : 1;
      for (WordSplitter splitter(text, words); !splitter.done();) {
        size_t want = takes_slashes(words)
                          ? regex.match_o200k(at, digits, words == Words::kO200k)
                          : regex.match_cl100k(at, digits, words == Words::kQwen35);
        ASSERT_EQ(splitter.next(), text.substr(at, want)) << shown(text);
        at += want;
      }
      ASSERT_EQ(at, text.size());
    }
  }
}

}  // namespace
}  // namespace neox
