// The documents of JSON lines, as Python's json module reads them: the last of equal keys counts,
// NaN and Infinity are numbers. Bytes that are not UTF-8 become U+FFFD and escapes of lone
// surrogates "?", as errors="replace" gives them in decoding and encoding.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "prepare/documents.h"

namespace neox {

// For one thread.
class JsonLineParser {
 public:
  // Both must outlive the parser.
  JsonLineParser(const DocumentRules& rules, TextStore& storage);
  ~JsonLineParser();

  // The values of the keys in an object, as views of the line or of the storage. `readable` bytes
  // may be read from where the line begins; kSlack more than it has save a copy. Throws Error (74)
  // with what is wrong.
  static constexpr size_t kSlack = 64;
  Document parse(std::string_view line, size_t readable);
  // The same, and nothing where that throws, which takes many times as long.
  std::optional<Document> parse_good(std::string_view line, size_t readable);

 private:
  // kUnsure: what simdjson does not read may be right all the same.
  enum class Found { kGood, kBad, kUnsure };
  Found find(std::string_view line, size_t readable, Document& document);
  Document parse_short(std::string_view line, size_t readable);
  Found parse_fast(std::string_view line, std::string_view given, size_t readable,
                   Document& document);
  Document parse_slow(std::string_view line);
  Document parse_long(std::string_view line);
  bool take_json(std::string_view line, std::string_view given, Document& document) const;
  static std::string long_string(std::string_view value, bool& repaired);

  struct Fast;
  const DocumentRules& rules_;
  TextStore& storage_;
  std::unique_ptr<Fast> fast_;
};

}  // namespace neox
