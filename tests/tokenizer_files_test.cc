// The files that describe tokenizers: every form that is read, and what is refused by name.
#include "tokenizer/tokenizer_files.h"
#include "tokenizer_fixture.h"

namespace neox {
namespace {

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

// As transformers, which sets them anew for each call.
TEST_F(TokenizerTest, LeavesTruncationAndPaddingOut) {
  json root = described();
  root["truncation"] = {{"max_length", 1}};
  root["padding"] = {{"strategy", {{"Fixed", 50}}}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(load(root).encode("the and of"), small().encode("the and of"));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("truncation is left out"),
            std::string::npos);
}

TEST_F(TokenizerTest, AcceptsSequencesOfOneAndPlainTemplates) {
  json root = described();
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {root["pre_tokenizer"]}}};
  json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  root["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {sequence}}};
  EXPECT_EQ(load(root).encode("cafe\u0301 of"), small().encode("cafe\u0301 of"));
}

json split(const char* regex, const char* behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", behavior},
          {"invert", invert}};
}

json behind(json first, json byte_level, bool use_regex) {
  byte_level["use_regex"] = use_regex;
  return {{"type", "Sequence"}, {"pretokenizers", {std::move(first), std::move(byte_level)}}};
}

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST_F(TokenizerTest, WordsAreThoseOfTheRegularExpression) {
  std::string shout(700, '!'), text = "it'S 1234567 (the) \n\n and\tof" + shout + "\n9";
  json level = described()["pre_tokenizer"];
  auto expect_words = [&](const json& pre_tokenizer, const std::vector<std::string>& words) {
    json root = described();
    root["pre_tokenizer"] = pre_tokenizer;
    Tokenizer t = load(root);
    std::vector<int32_t> want;
    for (const std::string& word : words) t.encode(word, want);
    EXPECT_EQ(t.encode(text), want);
  };
  std::vector<std::string> words = {"it",  "'S", " ",     "123",  "456",  "7",          " (",
                                    "the", ")",  " \n\n", " and", "\tof", shout + "\n", "9"};
  expect_words(behind(split(kLlama3, "Isolated", false), level, false), words);
  words.erase(words.begin() + 3, words.begin() + 6);
  for (const char* digit : {"7", "6", "5", "4", "3", "2", "1"})
    words.insert(words.begin() + 3, digit);
  expect_words(behind(split(kQwen2, "Removed", true), level, false), words);
  expect_words(behind(split(kTekken, "Isolated", false), level, false), words);
  std::string after = " (the) \n\n and\tof" + shout + "\n";
  expect_words(behind({{"type", "Digits"}, {"individual_digits", true}}, level, true),
               {"it'S ", "1", "2", "3", "4", "5", "6", "7", after, "9"});
  // Digits goes by Unicode 17, in which this one is a number; the words behind it do not.
  text = "!\U00011de2's";
  expect_words(behind({{"type", "Digits"}, {"individual_digits", true}}, level, true),
               {"!", "\U00011de2", "'s"});
}

TEST_F(TokenizerTest, PutsTheTokensOfItsTemplateAroundATextAlone) {
  json root = described();
  auto special = [](const char* token) {
    return json{{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  };
  json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json tokens = {{"B", {{"id", "B"}, {"ids", {0, 7}}, {"tokens", {"x", "y"}}}},
                 {"E", {{"id", "E"}, {"ids", {1}}, {"tokens", {"z"}}}}};
  json around = {{"type", "TemplateProcessing"},
                 {"single", {special("B"), text, special("E")}},
                 {"special_tokens", tokens}};
  root["post_processor"] = {{"type", "Sequence"},
                            {"processors", {{{"type", "ByteLevel"}}, around}}};
  Tokenizer t = load(root);
  std::vector<int32_t> plain = small().encode("the and"), want = {0, 7}, inner;
  want.insert(want.end(), plain.begin(), plain.end());
  want.push_back(1);
  EXPECT_EQ(t.encode("the and"), want);
  EXPECT_EQ(t.encode(""), (std::vector<int32_t>{0, 7, 1}));
  t.encode_plain("the and", inner);
  EXPECT_EQ(inner, plain);
  EXPECT_FALSE(t.parts_at_words());
  EXPECT_TRUE(small().parts_at_words());
}

// A line end that is a token only where no word stands beside it: a cut would hide what follows.
TEST_F(TokenizerTest, PartsNoTextAtATokenThatAsksWhatIsAroundIt) {
  for (bool single : {false, true}) {
    json root = described();
    root["added_tokens"].push_back({{"id", small().vocab_size()},
                                    {"content", "\n"},
                                    {"single_word", single},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", false}});
    EXPECT_EQ(load(root).parts_at_words(), !single);
  }
}

// As `tokenizers` 0.23.3 does: such a token counts, where an id without a token does not.
TEST_F(TokenizerTest, AVocabularyMayHoldTheEmptyToken) {
  for (int empty : {500, 503}) {
    json root = described();
    root["model"]["vocab"][""] = empty;
    root["added_tokens"].push_back(added(501, "<|x|>"));
    std::vector<int32_t> want = small().encode("the"), ids = load(root).encode("the<|x|>");
    want.push_back(501);
    EXPECT_EQ(ids, want);
    EXPECT_EQ(load(root).decode(ids), "the<|x|>");
  }
}

TEST_F(TokenizerTest, EndsDocumentsAsLlama3Does) {
  json root = described();
  root["added_tokens"].push_back(added(500, "<|end_of_text|>", "special"));
  EXPECT_EQ(load(root).end_of_document(), small().end_of_document());
  root["model"]["vocab"].erase("<|endoftext|>");
  root["model"]["vocab"]["<|other|>"] = 0;
  root["added_tokens"][0]["content"] = "<|other|>";
  EXPECT_EQ(load(root).end_of_document(), 500);
  root["added_tokens"][2]["special"] = false;
  EXPECT_FALSE(load(root).has_end_of_document());
}

TEST_F(TokenizerTest, EndsDocumentsAsTheConfigurationBesideItSays) {
  json root = described();
  root["model"]["vocab"].erase("<|endoftext|>");
  root["model"]["vocab"]["<|other|>"] = 0;
  root["added_tokens"][0]["content"] = "<|other|>";
  for (const char* config :
       {"{\"eos_token\": \"<|other|>\"}", "{\"eos_token\": {\"content\": \"<|other|>\"}}"}) {
    file(config, "tokenizer_config.json");
    EXPECT_EQ(load(root).end_of_document(), 0);
  }
  file("{\"eos_token\": null}", "tokenizer_config.json");
  EXPECT_FALSE(load(root).has_end_of_document());
  file("none", "tokenizer_config.json");
  EXPECT_FALSE(load(root).has_end_of_document());
  root["added_tokens"][0]["content"] = "[EOS]", root["model"]["vocab"].erase("<|other|>");
  root["model"]["vocab"]["[EOS]"] = 0;
  EXPECT_EQ(load(root).end_of_document(), 0);
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
    {"Model", [](json& r) { r["model"]["type"] = "Ngram"; }, "model: the type is Ngram"},
    {"Dropout", [](json& r) { r["model"]["dropout"] = 0.1; }, "dropout is not supported"},
    {"Flag", [](json& r) { r["model"]["byte_fallback"] = 3; }, "expected true or false, found 3"},
    {"VocabList", [](json& r) { r["model"]["vocab"] = json::array(); }, "expected a map"},
    {"VocabId", [](json& r) { r["model"]["vocab"]["the"] = "x"; }, "the id of \"the\" is \"x\""},
    {"VocabHole", [](json& r) { r["model"]["vocab"]["the"] = 5000; },
     "\"the\" has id 5000, which is not one of"},
    {"VocabTwice", [](json& r) { r["model"]["vocab"]["the"] = 3; }, "have the same id 3"},
    {"NegativeId", [](json& r) { r["model"]["vocab"]["the"] = -1; }, "\"the\" has id -1, which"},
    {"HugeId", [](json& r) { r["model"]["vocab"]["the"] = UINT64_MAX; }, "\"the\" has id"},
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
    {"Normalizer", [](json& r) { r["normalizer"] = typed("Upper"); }, "the type is Upper"},
    {"Nested",
     [](json& r) {
       r["normalizer"] = {{"type", "Sequence"}, {"normalizers", {typed("NFC"), typed("Strip")}}};
     },
     "normalizer, normalizers[1]: \"strip_left\" is missing"},
    {"Splitter", [](json& r) { r["pre_tokenizer"] = typed("Blank"); }, "the type is Blank"},
    {"Splitters",
     [](json& r) {
       r["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {typed("Digits"), r["pre_tokenizer"]}}};
     },
     "\"individual_digits\" is missing"},
    {"Decoder", [](json& r) { r["decoder"] = typed("Word"); }, "decoder: the type is"},
    {"Roberta", [](json& r) { r["post_processor"] = typed("RobertaProcessing"); },
     "\"cls\" is missing"},
    {"Template",
     [](json& r) {
       json cls = {{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}};
       r["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {cls}}};
     },
     "special_tokens\" is missing"},
    {"TemplateId",
     [](json& r) {
       json cls = {{"SpecialToken", {{"id", "C"}, {"type_id", 0}}}};
       r["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {cls}},
                              {"special_tokens", {{"C", {{"ids", {50000}}}}}}};
     },
     "50000 is no token"},
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
  EXPECT_NE(json_error(dir_).find(dir_.string() + ": Is a directory (EISDIR): give the path of a"),
            std::string::npos);
  EXPECT_NE(json_error(file("")).find("not valid JSON"), std::string::npos);
  std::string error = json_error(file("{\"model\": {\n \"type\": }"));
  EXPECT_NE(error.find("parse error at line 2, column 10"), error.npos) << error;
  EXPECT_NE(json_error(file("{\"a\": \"\xFF\"}")).find("not valid JSON"), std::string::npos);
  std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  EXPECT_NE(json_error(file("{\"version\": " + deep + "}")).find("more than 500 levels"),
            std::string::npos);
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
