// JSON lines read fast and slowly, and where members of an object stand.
#include "prepare/json_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data_files.h"
#include "prepare/json_members.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The texts of a line, joined by "|"; with "!" before them where it was repaired.
std::string parsed(const std::string& line, const DocumentRules& rules = {}) {
  TextStore storage;
  Document document = JsonLineParser(rules, storage).parse(line, line.size());
  std::string text = document.repaired ? "!" : "";
  for (size_t i = 0; i < document.texts.size(); ++i)
    text += (i ? "|" : "") + std::string(document.texts[i]);
  return text;
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

TEST(JsonLine, SaysWhatIsWrongInWholeCharacters) {
  std::string error = error_of([&] { parsed("{\"text\": \"a\"}\u2028{}"); });
  EXPECT_THAT(error, StartsWith("74: not valid JSON"));
  EXPECT_EQ(error.find("\xe2'"), std::string::npos) << error;
}

TEST(JsonLine, TakesSeveralKeysInTheirOrder) {
  EXPECT_EQ(parsed(R"({"b": "1", "a": "2", "b": "3"})", {.keys = {"a", "b"}}), "2|3");
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
