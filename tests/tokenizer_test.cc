#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

#include "hex.h"
#include "tokenizer_fixture.h"

namespace neox {
namespace {

const json& golden() {
  static const json kGolden =
      json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/tokenizer.json"));
  return kGolden;
}

std::string hex_of(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// As ADDED in tests/oracle/tokenizer_golden.py.
json with_added_tokens(json root) {
  for (const json& token : {added(500, "  "), added(501, "    "), added(502, "<s>", "single_word"),
                            added(503, "<l>", "lstrip", false), added(504, "<r>", "rstrip", false),
                            added(505, "cafe\u0301"), added(506, "nai\u0308ve", "special")})
    root["added_tokens"].push_back(token);
  return root;
}

TEST_F(TokenizerTest, GivesTheIdsAndTextsOfTheReference) {
  Tokenizer tokenizer = load(with_added_tokens(described()));
  for (const json& one : golden()["cases"]) {
    std::string hex = one["text"];
    std::vector<int32_t> ids = tokenizer.encode(from_hex(hex));
    EXPECT_EQ(ids, one["ids"].get<std::vector<int32_t>>()) << hex;
    EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>()) << hex;
    EXPECT_EQ(tokenizer.decode(ids, Tokenizer::Special::kKeep),
              one["with_special"].get<std::string>())
        << hex;
  }
}

TEST_F(TokenizerTest, GivesTheIdsOfTheReferenceForRealTextsWith20B) {
  const char* data = std::getenv("NEOX_TEST_DATA");
  if (!data) GTEST_SKIP() << "NEOX_TEST_DATA is not set";
  if (!stdfs::exists(stdfs::path(data) / "20B_tokenizer.json"))
    GTEST_SKIP() << data << " has no 20B_tokenizer.json";
  Tokenizer tokenizer = Tokenizer::from_json(stdfs::path(data) / "20B_tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), 50277);
  EXPECT_EQ(tokenizer.end_of_document(), 0);
  for (const auto& [name, digest] : golden()["20B"].items()) {
    std::vector<int32_t> ids = tokenizer.encode(read_file(stdfs::path(data) / name));
    EXPECT_EQ(ids.size(), digest["count"]) << name;
    EXPECT_EQ(digest["fnv"], hex_of(fnv(ids.data(), ids.size() * sizeof(int32_t)))) << name;
  }
}

TEST_F(TokenizerTest, RestoresTextThatIsNfc) {
  Tokenizer tokenizer = small();
  for (std::string text : TextGenerator(2).documents(200, 50)) {
    for (size_t at; (at = text.find("e\xCC\x81")) != text.npos;) text.replace(at, 3, "\xC3\xA9");
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST_F(TokenizerTest, ComposesMarksAndHangul) {
  Tokenizer tokenizer = small();
  auto through = [&](const char* text) { return tokenizer.decode(tokenizer.encode(text)); };
  EXPECT_EQ(through("e\u0323\u0302"), "\u1EC7");
  EXPECT_EQ(through("e\u0302\u0323"), "\u1EC7");
  EXPECT_EQ(through("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(through("\u0958"), "\u0915\u093C");  // an exclusion from composition
  EXPECT_EQ(through("\u0301x"), "\u0301x");
}

TEST_F(TokenizerTest, LeavesTextAloneWithoutANormalizer) {
  json root = described();
  root["normalizer"] = nullptr;
  Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e\u0302\u0323")), "e\u0302\u0323");
}

// As `tokenizers` 0.23.3 does.
TEST_F(TokenizerTest, LosesBytesThatHaveNoTokenWhereNoneIsForTheUnknown) {
  json root = described(), vocab = json::object();
  for (const auto& [token, id] : root["model"]["vocab"].items())
    vocab[token == to_byte_level("\x04") ? "unused<>" : token] = id;
  Tokenizer whole = load(root);
  const int32_t lost = root["model"]["vocab"][to_byte_level("\x04")];
  root["model"]["vocab"] = vocab, root["model"]["unk_token"] = nullptr;
  Tokenizer t = load(root);
  EXPECT_EQ(t.loss(), "1 byte without a token (0x04) is lost");
  EXPECT_EQ(whole.loss(), "");
  for (std::string_view text : {"th\x04"
                                "e",
                                "\x04", "the\x04\x04 the\x04", "\x04the"}) {
    std::vector<int32_t> left = whole.encode(text);
    std::erase(left, lost);
    EXPECT_EQ(t.encode(text), left) << to_byte_level(text);
  }
}

TEST_F(TokenizerTest, ReadsBytesThatAreNotUtf8AsReplacementCharacters) {
  Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.encode("a\xF0\x9F\x99z\xC0\x80"), tokenizer.encode("a\uFFFDz\uFFFD\uFFFD"));
  EXPECT_EQ(tokenizer.encode("\xED\xA0\x80"), tokenizer.encode("\uFFFD\uFFFD\uFFFD"));
}

TEST_F(TokenizerTest, LeavesOutSpecialTokensWhenAsked) {
  Tokenizer tokenizer = small();
  std::vector<int32_t> ids = tokenizer.encode("ka<|endoftext|>to");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.end_of_document()), 1);
  EXPECT_EQ(tokenizer.decode(ids), "kato");
  EXPECT_EQ(tokenizer.decode(ids, Tokenizer::Special::kKeep), "ka<|endoftext|>to");
}

TEST_F(TokenizerTest, DecodesPartsOfACharacterToReplacementCharacters) {
  Tokenizer tokenizer = small();
  std::vector<int32_t> ids = tokenizer.encode("\U0001F9FF");
  ASSERT_GT(ids.size(), 1u);
  std::string bytes;
  for (int32_t id : ids) bytes += tokenizer.token_bytes(id);
  EXPECT_EQ(bytes, "\U0001F9FF");
  EXPECT_EQ(tokenizer.decode({ids[0]}), "\uFFFD");
}

TEST_F(TokenizerTest, LeavesOutIdsItDoesNotHave) {
  Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.vocab_size(), 500);
  std::vector<int32_t> ids = tokenizer.encode("ka");
  ids.insert(ids.end(), {500, -1, INT32_MAX});
  EXPECT_EQ(tokenizer.decode(ids), "ka");
  EXPECT_EQ(tokenizer.token_bytes(500), "");
}

TEST_F(TokenizerTest, EncodesMillionsOfLettersWithoutASpace) {
  Tokenizer tokenizer = small();
  for (const char* part : {"a", "ka", " ", "!", "e\u0323\u0301", "\n"}) {
    std::string text;
    while (text.size() < 2'000'000) text += part;
    EXPECT_EQ(tokenizer.encode(text).empty(), false);
  }
  std::string marks = "a";
  for (int i = 0; i < 300'000; ++i) marks += i % 2 ? "\u0301" : "\u0323";
  EXPECT_GT(tokenizer.encode(marks).size(), 300'000u);
}

TEST_F(TokenizerTest, LongWordsFollowTheMergesOfShortOnes) {
  json root = described();
  root["pre_tokenizer"]["use_regex"] = false;
  Tokenizer tokenizer = load(root);
  for (const std::string& word : TextGenerator(6).documents(300, 12)) {
    std::vector<int32_t> ids = tokenizer.encode(word);
    ids.insert(ids.end(), 150, tokenizer.encode("#")[0]);
    EXPECT_EQ(tokenizer.encode(word + std::string(150, '#')), ids) << word;  // # never merges
  }
}

// As in the reference's map of merges.
TEST_F(TokenizerTest, OfEqualMergesTheLastCounts) {
  json twice = described(), last = twice;
  json first = twice["model"]["merges"][0];
  last["model"]["merges"].erase(0);
  for (json* root : {&twice, &last}) (*root)["model"]["merges"].push_back(first);
  Tokenizer a = load(twice), b = load(last);
  for (const std::string& text : TextGenerator(7).documents(50, 20))
    EXPECT_EQ(a.encode(text), b.encode(text)) << text;
}

TEST_F(TokenizerTest, TokenizersOnOneThreadDoNotMixTheirWords) {
  Tokenizer one = small();
  Tokenizer other = load([&] {
    json root = described();
    root["model"]["merges"] = json::array();
    return root;
  }());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(one.encode("the").size(), 1u);
    EXPECT_EQ(other.encode("the").size(), 3u);
  }
}

TEST_F(TokenizerTest, ThreadsAgree) {
  Tokenizer tokenizer = small();
  std::string text = TextGenerator(3).text(20'000);
  std::vector<std::vector<int32_t>> ids(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : ids) threads.emplace_back([&] { mine = tokenizer.encode(text); });
  }
  for (const auto& mine : ids) EXPECT_EQ(mine, ids[0]);
}

TEST_F(TokenizerTest, CharactersAreBytes) {
  Tokenizer tokenizer = Tokenizer::characters();
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(tokenizer.end_of_document(), 0);
  std::string text = "a\xC3\xA9\n<|endoftext|>  z";
  std::vector<int32_t> ids = tokenizer.encode(text);
  EXPECT_EQ(ids, std::vector<int32_t>(reinterpret_cast<const uint8_t*>(text.data()),
                                      reinterpret_cast<const uint8_t*>(text.data()) + text.size()));
  ids.push_back(0);
  ids.push_back(511);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.encode(std::string(3'000'000, 'a')).size(), 3'000'000u);
}

}  // namespace
}  // namespace neox
