// JSON lines read fast and slowly, and where members of an object stand.
#include "prepare/json_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data_files.h"
#include "prepare/json_members.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const DocumentRules kTexts;

// The texts of a line, joined by "|"; with "!" before them where it was repaired.
std::string shown(const Document& document) {
  std::string text = document.repaired ? "!" : "";
  for (size_t i = 0; i < document.texts.size(); ++i)
    text += (i ? "|" : "") + std::string(document.texts[i]);
  return text;
}

std::string parsed(const std::string& line, const DocumentRules& rules = kTexts) {
  TextStore storage;
  return shown(JsonLineParser(rules, storage).parse(line, line.size()));
}

TEST(JsonLine, ReadsWhatPythonReads) {
  EXPECT_EQ(parsed(R"({"text": "a", "x": {"text": "b"}, "text": "c\n\u00e9\/"})"), "c\né/");
  EXPECT_EQ(parsed(R"({"x": [NaN, 1e400, -Infinity, 2e-4000], "text": "1e400 NaN"})"), "1e400 NaN");
  EXPECT_EQ(parsed(R"({"x": 123456789012345678901234567890, "text": "a"})"), "a");
  EXPECT_EQ(parsed(R"({"te\u0078t": "a"})"), "a");
  EXPECT_EQ(parsed(R"({"text": "\ud83d\ude00 \ud83d"})"), "!😀 ?");
  EXPECT_EQ(parsed("{\"text\": \"a\xff\"}"), "!a\uFFFD");
  EXPECT_EQ(parsed(R"({"x": )" + std::string(2000, '[') + std::string(2000, ']') +
                   R"(, "text": "deep"})"),
            "deep");
}

TEST(JsonLine, RefusesWhatPythonRefuses) {
  for (const char* line :
       {R"({"text": "a", "x": tru})", R"({"text": "a"} x)", R"({"text": "a",})", R"({"text": 'a'})",
        "{\"text\": \"a\tb\"}", R"({"text": "\x"})", R"({"text": "a", "x": 1e})",
        R"({"text": "a", "x": 01})", R"({"text": "a)", R"({"text": "a", 1: 2})"})
    EXPECT_THAT(error_of([&] { parsed(line); }), StartsWith("74: not valid JSON: column")) << line;
  EXPECT_THAT(error_of([&] { parsed("{\r"); }), HasSubstr("over several lines"));
  const std::string torn("{\"text\": \"a\"}\0\0{\"text\": \"b\"}", 29);
  EXPECT_EQ(error_of([&] { parsed(torn); }), "74: not valid JSON: column 14: a byte of value 0");
}

// Also in strings that nobody asked for, of lines that are read in pieces.
TEST(JsonLine, RefusesInLongLinesWhatItRefusesInShortOnes) {
  const std::string pad(5 << 20, 'x');
  auto line = [&](const char* end) {
    return concat("{\"a\": \"", pad, end, "\", \"text\": \"hi\"}");
  };
  EXPECT_EQ(parsed(line("")), "hi");
  EXPECT_EQ(parsed(line("\\ud800")), "!hi");
  EXPECT_EQ(parsed(line("\xff")), "!hi");
  for (const char* end : {"\\x", "\x01"})
    EXPECT_THAT(error_of([&] { parsed(line(end)); }), StartsWith("74: not valid JSON"));
}

// What is bad, and what a good line has, does not depend on whether somebody asks what is wrong.
TEST(JsonLine, IsAsGoodWithoutAMessage) {
  const std::string seeds[] = {
      R"({"text": "a\n\u00e9 b", "x": [NaN, -1.5e3, {"text": null}], "y": true})",
      R"({"x": {"a": 12345678901234567890123, "b": [1e400, "\ud83d"]}, "text": ["p", "q"]})"};
  std::minstd_rand random(3);
  DocumentRules of_json{.keys = {"text", "y"}, .values = DocumentRules::Values::kJson};
  int64_t good = 0, bad = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line = seeds[i % 2];
    for (auto edits = random() % 3; edits > 0; --edits)
      line.replace(random() % line.size(), random() % 3, 1, "\"\\{}[]:,0eN-t\xff "[random() % 15]);
    const DocumentRules& rules = i % 3 ? kTexts : of_json;
    TextStore storage;
    auto found = JsonLineParser(rules, storage).parse_good(line, line.size());
    std::string texts = found ? shown(*found) : "";
    found ? ++good : ++bad;
    std::string error = error_of([&] { EXPECT_EQ(parsed(line, rules), texts) << line; });
    EXPECT_EQ(error.empty(), found.has_value()) << line << " " << error;
  }
  EXPECT_GT(good, 2000);
  EXPECT_GT(bad, 2000);
}

TEST(JsonLine, SaysWhatIsWrongInWholeCharacters) {
  std::string error = error_of([&] { parsed("{\"text\": \"a\"}\u2028{}"); });
  EXPECT_THAT(error, StartsWith("74: not valid JSON"));
  EXPECT_EQ(error.find("\xe2'"), std::string::npos) << error;
}

TEST(JsonLine, TakesSeveralKeysInTheirOrder) {
  EXPECT_EQ(parsed(R"({"b": "1", "a": "2", "b": "3"})", {.keys = {"a", "b"}}), "2|3");
}

// As lm_dataformat does, by which GPT-NeoX's preprocess_data.py reads.
TEST(JsonLine, JoinsTheTextsOfAListByABlankLine) {
  EXPECT_EQ(parsed(R"({"text": ["a\u00e9", "", "b"]})"), "aé\n\n\n\nb");
  EXPECT_EQ(parsed(R"({"text": ["a"], "x": NaN, "b": []})", {.keys = {"text", "b"}}), "a|");
  EXPECT_EQ(parsed(R"({"text": ["\ud83d", "b"]})"), "!?\n\nb");
  EXPECT_EQ(parsed(R"({"text": ["a"], "x": 123456789012345678901234567890})"), "a");
  const std::string pad(5 << 20, 'x');
  EXPECT_TRUE(parsed(concat(R"({"x": ")", pad, R"(", "text": ["a", ")", pad, R"("]})")) ==
              "a\n\n" + pad);
  EXPECT_EQ(error_of([&] { parsed(R"({"text": ["a", ["b"]]})"); }),
            "74: the value of 'text' is a list of other things than strings");
  for (const char* message : {R"({"role": "user"})", R"({"from": "human"})"})
    EXPECT_EQ(
        error_of([&] { parsed(concat(R"({"text": [)", message, "]}")); }),
        "74: the value of 'text' is a conversation, which --chat-template NAME or DIR makes a "
        "text");
  EXPECT_EQ(
      error_of([&] { parsed(R"({"text": {"en": "a", "de": "b"}})"); }),
      "74: the value of 'text' is of type object, not a string; the object has 'de', 'en', of "
      "which jq -c '.[\"text\"]' makes the line");
}

TEST(JsonLine, TakesTheJsonOfValues) {
  DocumentRules rules{.keys = {"m", "n"}, .values = DocumentRules::Values::kJson};
  EXPECT_EQ(parsed(R"({"m": 1, "n": null, "m" : [{"a": "]}\"", "b": 1.50}, {}] })", rules),
            R"([{"a": "]}\"", "b": 1.50}, {}]|null)");
  EXPECT_EQ(parsed(R"({"n":"x","m":{"k":NaN}})", rules), R"({"k":null}|"x")");
  EXPECT_EQ(parsed(R"({"n":"\ud83d","m":1})", rules), R"(!1|"?")");
  EXPECT_EQ(parsed(R"({"n":NaN,"m":[3e-4,-6.02E23,1e999,1e-999]})", rules),
            "[3e-4,-6.02E23,1e0,1e-999]|null");
  EXPECT_THAT(error_of([&] { parsed(R"({"m": 1})", rules); }),
              HasSubstr("no key 'n'; the object has 'm'"));
  EXPECT_THAT(error_of([&] { parsed(R"({"m": [1,], "n": 2})", rules); }),
              HasSubstr("not valid JSON"));
}

// A line of 5 MB is read in pieces, and gives what a short one gives.
TEST(JsonLine, ReadsLongStringsInPieces) {
  std::string part = R"(the \"cat\" \ud83d\ude00 and \\ the \ud83d hat\n )";
  std::string wanted_part = "the \"cat\" 😀 and \\ the ? hat\n ", value, wanted;
  while (value.size() < 5 << 20) value += part, wanted += wanted_part;
  EXPECT_TRUE(parsed(R"({"text": "", "text": ")" + value + R"(", "x": 1})") == "!" + wanted);
  EXPECT_EQ(parsed(R"({"text": ")" + value + R"(", "text": "last"})"), "!last");
  EXPECT_THAT(error_of([&] { parsed(R"({"text": ")" + value + "\t\"}"); }),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of([&] { parsed(R"({"text": ")" + value + R"(", "x": tru})"); }),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of([&] { parsed(R"({"other": ")" + value + R"("})"); }),
              AllOf(HasSubstr("no key 'text'"), HasSubstr("'other'")));
  EXPECT_THAT(error_of([&] { parsed(R"({"text": ")" + value); }), HasSubstr("not valid JSON"));
  std::string unbroken(5 << 20, 'a');
  EXPECT_TRUE(parsed(R"({"text": ")" + unbroken + R"("})") == unbroken);
}

TEST(TextStore, KeepsTextsInTheirPlace) {
  TextStore store;
  std::vector<std::string> wanted;
  std::vector<std::string_view> kept;
  for (int i = 0; i < 3000; ++i) {
    wanted.push_back(std::string(static_cast<size_t>(i * i % 1009), 'a') + std::to_string(i));
    if (i % 500 == 7) wanted.back().resize(100000, 'b');
    kept.push_back(i % 2 ? store.keep(wanted.back()) : store.keep(std::string(wanted.back())));
  }
  TextStore moved = std::move(store);
  for (size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i], wanted[i]);
}

TEST(JsonMembers, StandWhereTheyAre) {
  std::string found;
  for (const JsonMember& m : json_members(R"( { "a" :[1,"]"] , "b\"":"}","c":-1.5e3 ,"d":{}} )"))
    found += concat(m.key, "=", m.value, ";");
  EXPECT_EQ(found, R"(a=[1,"]"];b\"="}";c=-1.5e3;d={};)");
  for (const char* text :
       {"", "{", "{}", "[1]", "{\"a\"", "{\"a\":", "{\"a\": \"", "{\"a\": [", "{,"})
    json_members(text);
}

}  // namespace
}  // namespace neox
