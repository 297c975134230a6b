// The documents of a block of input: the texts of JSON lines by their keys, or the parts of a text.
// Pure functions; any thread may call them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "prepare/blocks.h"

namespace neox {

// One line of JSON, or one document of text.
struct Document {
  std::vector<std::string> texts;  // one for each key; valid UTF-8
  bool repaired = false;           // had bytes or escapes that are no Unicode
};

// The values of the keys in a JSON object, as Python's json module reads it: the last of equal keys
// counts, NaN and Infinity are numbers. Bytes that are not UTF-8 become U+FFFD and escapes of lone
// surrogates "?", as errors="replace" gives them in decoding and encoding. Throws Error (74) with
// what is wrong.
struct DocumentRules;
Document parse_json_line(std::string_view line, const DocumentRules& rules);

struct DocumentRules {
  std::vector<std::string> keys = {"text"};
  std::string separator = {};  // lines that part the documents of a text; "": one document
  enum class BadLines { kFail, kSkip } bad_lines = BadLines::kFail;
  // What is taken of JSON lines: strings, or the JSON of a value of any type as it stands there.
  enum class Values { kStrings, kJson } values = Values::kStrings;
  // What else must hold of the texts of JSON lines: throws Error (74) with what is wrong.
  std::function<void(std::string_view)> check = {};
};

struct Documents {
  std::vector<Document> documents;
  std::vector<std::string> skipped;  // messages, "file:line: ..."
  std::string error;                 // what ended the block early: "file:line: ..."
};

// A text counts for every key. Blank lines of JSON and blank parts of text are no documents.
Documents parse_block(const Block& block, const DocumentRules& rules);

}  // namespace neox
