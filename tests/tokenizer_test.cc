#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "generated_text.h"
#include "hex.h"

namespace neox {
namespace {

using nlohmann::json;
namespace stdfs = std::filesystem;

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

// A folder of its own for each test, and a small tokenizer trained once.
class TokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    dir_ = stdfs::path(testing::TempDir()) / ("neox_tokenizer_" + name);
    stdfs::create_directories(dir_);
  }
  void TearDown() override { stdfs::remove_all(dir_); }

  static const TrainedBpe& trained() {
    static const TrainedBpe kTrained =
        train_bpe({.vocab_size = 500}, each(TextGenerator(1).documents(200, 100)));
    return kTrained;
  }
  stdfs::path file(const std::string& content, const char* name = "tokenizer.json") const {
    std::ofstream(dir_ / name, std::ios::binary) << content;
    return dir_ / name;
  }
  json described() const {
    write_tokenizer_json(dir_ / "trained.json", trained());
    return json::parse(read_file(dir_ / "trained.json"));
  }
  Tokenizer load(const json& root) const { return Tokenizer::from_json(file(root.dump())); }
  Tokenizer small() const { return load(described()); }
  std::string error_of(const std::function<void()>& action, Exit exit = Exit::kIo) const {
    try {
      action();
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), exit) << e.what();
      return e.what();
    }
    return "no error";
  }
  std::string error_of(const json& root) const {
    return error_of([&] { load(root); });
  }

  stdfs::path dir_;
};

json added(int id, const std::string& content, const char* flag = "", bool normalized = true) {
  json token = {{"id", id},        {"content", content}, {"single_word", false},
                {"lstrip", false}, {"rstrip", false},    {"normalized", normalized},
                {"special", false}};
  if (*flag) token[flag] = true;
  return token;
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
    EXPECT_EQ(hex_of(fnv(ids.data(), ids.size() * sizeof(int32_t))), digest["fnv"]) << name;
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
    ids.insert(ids.end(), 30, tokenizer.encode("#")[0]);
    EXPECT_EQ(tokenizer.encode(word + std::string(30, '#')), ids) << word;  // # never merges
  }
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

TEST_F(TokenizerTest, ReadsMergesAsStringsAndAsPairs) {
  json root = described();
  for (json& merge : root["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  std::string text = TextGenerator(4).text(500);
  EXPECT_EQ(load(root).encode(text), small().encode(text));
}

TEST_F(TokenizerTest, Gpt2FilesGiveTheSameIds) {
  write_gpt2_files(dir_ / "vocab.json", dir_ / "merges.txt", trained());
  Tokenizer gpt2 = Tokenizer::from_gpt2(dir_ / "vocab.json", dir_ / "merges.txt");
  json root = described();
  root["normalizer"] = nullptr;
  root["added_tokens"].erase(1);  // GPT-2's files name no special tokens but the first
  std::string text = TextGenerator(5).text(500) + "<|endoftext|><|padding|>";
  EXPECT_EQ(gpt2.encode(text), load(root).encode(text));
  EXPECT_EQ(gpt2.end_of_document(), 0);
}

TEST_F(TokenizerTest, AWholeWordComesFirstWithIgnoreMerges) {
  json root = described();
  root["model"]["merges"] = json::array();
  root["model"]["ignore_merges"] = true;
  EXPECT_EQ(load(root).encode("the").size(), 1u);
}

TEST_F(TokenizerTest, PutsASpaceBeforeTheFirstWordWhereAskedTo) {
  json root = described();
  root["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(load(root).encode("the and"), small().encode(" the and"));
  EXPECT_EQ(load(root).encode(" the and"), small().encode(" the and"));
}

TEST_F(TokenizerTest, AcceptsSequencesOfOneAndPlainTemplates) {
  json root = described();
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {root["pre_tokenizer"]}}};
  json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  root["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {sequence}}};
  EXPECT_EQ(load(root).encode("cafe\u0301 of"), small().encode("cafe\u0301 of"));
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

TEST_F(TokenizerTest, SaysThatThereIsNoEndOfDocument) {
  TrainedBpe none = train_bpe({.vocab_size = 256, .special_tokens = {}}, each({}));
  write_tokenizer_json(dir_ / "none.json", none);
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "none.json");
  EXPECT_FALSE(tokenizer.has_end_of_document());
  std::string error = error_of([&] { tokenizer.end_of_document(); }, Exit::kUsage);
  EXPECT_NE(error.find("none.json: there is no token <|endoftext|>"), error.npos) << error;
}

// What is wrong with a file, and what the message must say.
struct BadFile {
  const char* name;
  std::function<void(json&)> spoil;
  const char* says;
};

void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.name; }

class BadTokenizer : public TokenizerTest, public testing::WithParamInterface<BadFile> {};

TEST_P(BadTokenizer, IsRefusedByName) {
  json root = described();
  GetParam().spoil(root);
  std::string error = error_of(root);
  EXPECT_NE(error.find("tokenizer.json"), error.npos) << error;
  EXPECT_NE(error.find(GetParam().says), error.npos) << error;
}

json typed(const char* type) { return {{"type", type}}; }

const BadFile kBadFiles[] = {
    {"List", [](json& r) { r = json::array(); }, "expected a JSON object, found array"},
    {"Version", [](json& r) { r["version"] = "2.0"; }, "version \"2.0\" is not supported"},
    {"NoModel", [](json& r) { r.erase("model"); }, "\"model\" is missing"},
    {"Unigram", [](json& r) { r["model"]["type"] = "Unigram"; }, "model: the type is Unigram"},
    {"WordPiece", [](json& r) { r["model"]["type"] = "WordPiece"; }, "the type is WordPiece"},
    {"Dropout", [](json& r) { r["model"]["dropout"] = 0.1; }, "dropout is not supported"},
    {"ByteFallback", [](json& r) { r["model"]["byte_fallback"] = true; }, "byte_fallback"},
    {"Flag", [](json& r) { r["model"]["byte_fallback"] = 3; }, "expected true or false, found 3"},
    {"Suffix", [](json& r) { r["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix"},
    {"VocabList", [](json& r) { r["model"]["vocab"] = json::array(); }, "expected a map"},
    {"VocabId", [](json& r) { r["model"]["vocab"]["the"] = "x"; }, "the id of \"the\" is \"x\""},
    {"VocabHole", [](json& r) { r["model"]["vocab"]["the"] = 500; }, "\"the\" has id 500, but"},
    {"VocabTwice", [](json& r) { r["model"]["vocab"]["the"] = 3; }, "have the same id 3"},
    {"NegativeId", [](json& r) { r["model"]["vocab"]["the"] = -1; }, "\"the\" has id -1, but"},
    {"HugeId", [](json& r) { r["model"]["vocab"]["the"] = UINT64_MAX; }, "\"the\" has id"},
    {"LostByte",
     [](json& r) {
       json vocab = json::object();
       for (const auto& [token, id] : r["model"]["vocab"].items())
         vocab[token == "b" ? "unused<>" : token] = id;
       r["model"]["vocab"] = vocab;
       r["model"]["merges"] = json::array();
     },
     "no token for the byte 98 (\"b\")"},
    {"NoMerges", [](json& r) { r["model"].erase("merges"); }, "\"merges\" is missing"},
    {"MergesMap", [](json& r) { r["model"]["merges"] = json::object(); }, "expected a JSON list"},
    {"UnknownPart", [](json& r) { r["model"]["merges"][7] = "Q qqq"; },
     "merges[7]: the merge \"Q qqq\" needs the token \"qqq\""},
    {"UnknownWhole",
     [](json& r) {
       r["model"]["merges"][7] = {"Q", "q"};
     },
     "the token \"Qq\""},
    {"MergeOfThree", [](json& r) { r["model"]["merges"][7] = "a b c"; }, "merges[7]: expected two"},
    {"MergeNumber", [](json& r) { r["model"]["merges"][7] = 5; }, "merges[7]: expected \"a b\""},
    {"Lowercase", [](json& r) { r["normalizer"] = typed("Lowercase"); }, "the type is Lowercase"},
    {"Nested",
     [](json& r) {
       r["normalizer"] = {{"type", "Sequence"}, {"normalizers", {typed("NFC"), typed("NFKC")}}};
     },
     "normalizer, normalizers[1]: the type is NFKC"},
    {"NoSplitter", [](json& r) { r["pre_tokenizer"] = nullptr; }, "\"pre_tokenizer\" is missing"},
    {"Whitespace", [](json& r) { r["pre_tokenizer"] = typed("Whitespace"); }, "is Whitespace"},
    {"Splitters",
     [](json& r) {
       r["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {typed("Digits"), r["pre_tokenizer"]}}};
     },
     "a Sequence of 2"},
    {"Decoder", [](json& r) { r["decoder"] = typed("WordPiece"); }, "decoder: the type is"},
    {"Roberta", [](json& r) { r["post_processor"] = typed("RobertaProcessing"); },
     "RobertaProcessing, which adds tokens"},
    {"Template",
     [](json& r) {
       json cls = {{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}};
       r["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {cls}}};
     },
     "the template adds tokens"},
    {"Truncation",
     [](json& r) {
       r["truncation"] = {{"max_length", 5}};
     },
     "truncation changes"},
    {"Padding", [](json& r) { r["padding"] = json::object(); }, "padding changes the ids"},
    {"AddedHole", [](json& r) { r["added_tokens"].push_back(added(501, "new")); },
     "added_tokens[2]: \"new\" has id 501, but the next free id is 500"},
    {"AddedOther", [](json& r) { r["added_tokens"].push_back(added(9, "the")); },
     "\"the\" has id 9, but already stands for"},
    {"AddedEmpty", [](json& r) { r["added_tokens"].push_back(added(500, "")); }, "is empty"},
    {"AddedFlag", [](json& r) { r["added_tokens"][0].erase("lstrip"); }, "\"lstrip\" is missing"},
    {"AddedSame",
     [](json& r) {
       r["added_tokens"].push_back(added(500, "\u00E9!"));
       r["added_tokens"].push_back(added(501, "e\u0301!"));
     },
     "both match"},
};

INSTANTIATE_TEST_SUITE_P(Tokenizer, BadTokenizer, testing::ValuesIn(kBadFiles),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(TokenizerTest, NamesFilesThatAreMissingOrBroken) {
  auto json_error = [&](const stdfs::path& path) {
    return error_of([&] { Tokenizer::from_json(path); });
  };
  EXPECT_NE(json_error(dir_ / "absent.json").find("absent.json"), std::string::npos);
  EXPECT_NE(json_error(dir_).find(dir_.string()), std::string::npos);
  EXPECT_NE(json_error(file("")).find("not valid JSON"), std::string::npos);
  std::string error = json_error(file("{\"model\": {\n \"type\": }"));
  EXPECT_NE(error.find("parse error at line 2, column 10"), error.npos) << error;
  EXPECT_NE(json_error(file("{\"a\": \"\xFF\"}")).find("not valid JSON"), std::string::npos);
}

TEST_F(TokenizerTest, NamesTheOtherKindOfFile) {
  write_gpt2_files(dir_ / "vocab.json", dir_ / "merges.txt", trained());
  stdfs::path vocab = dir_ / "vocab.json", whole = file(described().dump());
  EXPECT_NE(error_of([&] { Tokenizer::from_json(vocab); }).find("take the type GPT2BPETokenizer"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              Tokenizer::from_gpt2(whole, dir_ / "merges.txt");
            }).find("take the type HFTokenizer"),
            std::string::npos);
}

TEST_F(TokenizerTest, NamesTheLineOfABadMerge) {
  write_gpt2_files(dir_ / "vocab.json", dir_ / "merges.txt", trained());
  auto error = [&](const std::string& merges) {
    file(merges, "merges.txt");
    return error_of([&] { Tokenizer::from_gpt2(dir_ / "vocab.json", dir_ / "merges.txt"); });
  };
  EXPECT_NE(error("#version: 0.2\nt o\n\n").find("merges.txt:3: expected two"), std::string::npos);
  EXPECT_NE(error("#version: 0.2\r\nQ q\r\n").find("merges.txt:2: the merge \"Q q\" needs"),
            std::string::npos);
  EXPECT_EQ(error("#version: 0.2\r\nt o\r\n"), "no error");
  file("[1]", "vocab.json");
  EXPECT_NE(error("").find("vocab.json: expected a map from token to id"), std::string::npos);
}

}  // namespace
}  // namespace neox
