// A file that is one JSON array gives the dataset of its elements as JSON lines.
#include "prepare/json_array.h"

#include <gmock/gmock.h>

#include "archives.h"
#include "base/text.h"
#include "input_forms.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::archive_of;
using testing::compressed;
using testing::error_of;
using ::testing::HasSubstr;
using testing::line_of;
using ::testing::StartsWith;

std::string converted(std::string text, size_t first, int64_t byte = 0) {
  ArrayLines lines(byte);
  auto bytes = std::span(text);
  lines.convert(bytes.first(first));
  lines.convert(bytes.subspan(first));
  return text;
}

TEST(ArrayLines, HaveAnElementEachWhereItStands) {
  const std::string
      array = "\xEF\xBB\xBF [{\"a\": [1, {}],\n \"b\": \"],\\\"\\\\\"}, 2,\r\n[],{}\n]\n",
      lines = "\xEF\xBB\xBF  {\"a\": [1, {}],\r \"b\": \"],\\\"\\\\\"}\n 2\n\r\r[]\n{}\r \r";
  for (size_t first = 0; first <= array.size(); ++first)
    EXPECT_EQ(converted(array, first), lines) << first;
  size_t second = lines.find('\n') + 1, third = lines.find('\n', second) + 1;
  EXPECT_EQ(converted(array.substr(second), 1, static_cast<int64_t>(second)), lines.substr(second));
  EXPECT_EQ(next_element(array, 3), second);
  EXPECT_EQ(next_element(array, second), second);
  EXPECT_EQ(next_element(array, second + 1), third);
  EXPECT_EQ(next_element(array, array.size() - 2), array.size());
  EXPECT_EQ(count_elements(array), 3);
  EXPECT_EQ(count_elements(array.substr(0, third)), 2);
}

class JsonArrays : public testing::InputForms {
 protected:
  // As Python's json.dump writes it, or with indentation.
  static std::string array_of(const std::string& lines, const std::string& between = ", ") {
    std::string text = "[";
    for (const std::string& line : split(lines, '\n'))
      if (!line.empty()) text += (text.size() > 1 ? "," + between : between) + line;
    return text + "]";
  }
  static std::string indented(const std::string& lines) {
    return replace_all(array_of(lines, "\n  "), "{\"text\": ", "{\n    \"text\":\n") + "\n";
  }
  static std::string many(int count, const std::string& bad = "") {
    std::string lines;
    for (int i = 1; i <= count; ++i)
      lines +=
          i % 17001 == 0 && !bad.empty() ? bad + "\n" : line_of(concat("the, [cat] {\\\" ", i));
    return lines;
  }
};

TEST_F(JsonArrays, GiveTheDatasetOfTheirElements) {
  std::string wanted = dataset({dir_.put("a.jsonl", lines_)}), array = array_of(lines_, " ");
  expect_same({dir_.put("b.json", array)}, wanted);
  expect_same({dir_.put("b.jsonl", "\xEF\xBB\xBF\n " + indented(lines_))}, wanted);
  expect_same({dir_.put("b.json.gz", compressed(array, "gzip"))}, wanted);
  expect_same({dir_.put("b.json", "[]"), dir_.put("c.json", array)}, wanted);
  std::string twice = dataset({dir_.put("a.jsonl", lines_ + lines_)});
  expect_same({dir_.put("a.tar", archive_of({{"b.json", array}, {"c.json", array}}, "ustar"))},
              twice);
}

// In many blocks, and among ranks that begin in the middle of it.
TEST_F(JsonArrays, AreSharedAmongRanks) {
  std::string wanted = dataset({dir_.put("a.jsonl", many(40000))});
  for (const std::string& array : {array_of(many(40000)), indented(many(40000))})
    expect_same({dir_.put("b.json", array)}, wanted);
  std::string first = dataset({dir_ / "a.jsonl"}, {"--max-documents", "30001"});
  expect_same({dir_ / "b.json"}, first, {"--max-documents", "30001"});
}

TEST_F(JsonArrays, ElementsThatCannotBeReadAreCountedAndNamed) {
  std::string path = dir_.put("a.json", indented(many(40000, "{\"texts\": 1}")));
  for (int ranks : {1, 3}) {
    EXPECT_THAT(error_of([&] { prepare({path}, {}, ranks); }),
                HasSubstr(path + ": element 17001: no key 'text'; the object has 'texts'"));
    EXPECT_EQ(prepare({path}, {"--skip-bad-lines"}, ranks).skipped, 2);
    fs::remove(dir_ / "out_text_document.bin"), fs::remove(dir_ / "out_text_document.idx");
  }
  EXPECT_THAT(refusal({dir_.put("a.json", "[{\"text\": \"cat\"},\n {\"text\" 1}]")}),
              HasSubstr("a.json: element 2: not valid JSON: column 9"));
  EXPECT_THAT(refusal({dir_.put("a.json", "[1, 2]")}),
              HasSubstr("a.json: element 1: a JSON number, not an object"));
  EXPECT_THAT(refusal({dir_.put("a.json", "[{\"text\": \"two\nlines\"}]")}),
              HasSubstr("a.json: element 1: not valid JSON"));
}

TEST_F(JsonArrays, ThatDoNotEndOrGoOnAreNamed) {
  std::string array = array_of(lines_), whole = array_of(many(40000));
  for (const std::string& cut : {array.substr(0, array.size() - 1), whole.substr(0, 700000)})
    EXPECT_THAT(refusal({dir_.put("a.json", cut)}),
                AllOf(StartsWith(concat("74: ", dir_ / "a.json", " ends in the middle")),
                      HasSubstr(concat("begins at byte ", cut.rfind(", {") + 1))));
  EXPECT_THAT(error_of([&] { prepare({dir_ / "a.json"}, {}, 3); }), HasSubstr("in the middle"));
  EXPECT_THAT(refusal({dir_.put("a.json", array + "\n" + array)}),
              HasSubstr(concat("a.json: the JSON array that it is ends before byte ",
                               array.size() + 1, ", and more follows")));
  EXPECT_THAT(refusal({dir_.put("a.json.gz", compressed(array + "}", "gzip"))}),
              HasSubstr("more follows"));
}

}  // namespace
}  // namespace neox
