#include "prepare/documents.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

using Json = nlohmann::json;

// The code unit of an escape "\uXXXX" at text[at].
std::optional<uint32_t> code_unit(std::string_view text, size_t at) {
  uint32_t unit = 0;
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  const char* digits = text.data() + at + 2;
  auto [end, error] = std::from_chars(digits, digits + 4, unit, 16);
  if (error != std::errc() || end != digits + 4) return std::nullopt;
  return unit;
}

bool is_high(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// What Python reads and the standard does not know: "?" for escapes of lone surrogates in strings,
// null for NaN, Infinity and -Infinity outside them.
class PythonJson {
 public:
  explicit PythonJson(std::string_view line) : line_(line) {
    for (bool in_string = false; at_ < line_.size();) {
      if (line_[at_] == '"') in_string = !in_string;
      if (!(in_string ? copy_escape() : replace_number())) out_ += line_[at_++];
    }
  }
  const std::string& text() const { return out_; }
  bool lone_surrogates() const { return lone_surrogates_; }

 private:
  void copy(size_t bytes) {
    out_ += line_.substr(at_, bytes);
    at_ += bytes;
  }

  bool copy_escape() {
    if (line_[at_] != '\\') return false;
    auto unit = code_unit(line_, at_);
    auto next = unit && is_high(*unit) ? code_unit(line_, at_ + 6) : std::nullopt;
    if (next && is_low(*next)) {
      copy(12);
    } else if (unit && (is_high(*unit) || is_low(*unit))) {
      out_ += '?';
      at_ += 6;
      lone_surrogates_ = true;
    } else {
      copy(2);
    }
    return true;
  }

  bool replace_number() {
    for (std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (!line_.substr(at_).starts_with(name)) continue;
      out_ += "null";
      at_ += name.size();
      return true;
    }
    return false;
  }

  std::string_view line_;
  size_t at_ = 0;
  std::string out_;
  bool lone_surrogates_ = false;
};

// "column 5: syntax error ..." without the library's own prefix, cut to a line.
std::string describe(const Json::exception& e) {
  std::string text = e.what();
  if (size_t at = text.find("column "); at != std::string::npos) text.erase(0, at);
  constexpr size_t kLongest = 160;
  if (text.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + " ...";
  }
  return text;
}

Json parse_json(std::string_view line, bool& repaired) {
  try {
    return Json::parse(line);
  } catch (const Json::exception& e) {
    PythonJson python(line);
    std::string error = describe(e);
    check_io(python.text() != line, "not valid JSON: ", error);
    repaired |= python.lone_surrogates();
    try {
      return Json::parse(python.text());
    } catch (const Json::exception& again) { fail(Exit::kIo, "not valid JSON: ", describe(again)); }
  }
}

std::string names(const Json& object) {
  std::vector<std::string> found;
  for (const auto& item : object.items()) found.push_back("'" + item.key() + "'");
  return found.empty() ? "no key at all" : join(found, ", ");
}

std::string_view take_line(std::string_view& text) {
  size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void parse_lines(const Block& block, const DocumentRules& rules, Documents& found) {
  std::string_view text = block.text;
  for (int64_t number = block.line; !text.empty(); ++number) {
    std::string_view line = take_line(text);
    if (trim(line).empty()) continue;
    try {
      Document document = parse_json_line(line, rules);
      if (rules.check)
        for (const std::string& text : document.texts) rules.check(text);
      found.documents.push_back(std::move(document));
    } catch (const Error& e) {
      std::string message =
          concat(block.file->path, ":", block.number_in_file(number), ": ", e.what());
      if (rules.bad_lines == DocumentRules::BadLines::kFail) {
        found.error = message + "; --skip-bad-lines leaves such lines out and counts them";
        return;
      }
      found.skipped.push_back(message);
    }
  }
}

void add_text(std::string_view text, const DocumentRules& rules, Documents& found) {
  std::string storage;
  std::string_view valid = unicode::repair(text, storage);
  found.documents.push_back(
      {.texts = std::vector<std::string>(rules.keys.size(), std::string(valid)),
       .repaired = valid.data() != text.data()});
}

void part_text(const Block& block, const DocumentRules& rules, Documents& found) {
  std::string_view text = block.text;
  const char* begin = text.data();
  auto add_until = [&](const char* end) {
    std::string_view part(begin, static_cast<size_t>(end - begin));
    if (!trim(part).empty()) add_text(part, rules, found);
  };
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (!is_separator(line, rules.separator)) continue;
    add_until(line.data());
    begin = text.data();
  }
  add_until(text.data());
}

}  // namespace

Document parse_json_line(std::string_view line, const DocumentRules& rules) {
  const std::vector<std::string>& keys = rules.keys;
  Document document;
  std::string storage;
  std::string_view valid = unicode::repair(line, storage);
  document.repaired = valid.data() != line.data();
  Json object = parse_json(valid, document.repaired);
  check_io(object.is_object(), "a JSON ", object.type_name(), ", not an object with the key '",
           keys.front(), "'");
  for (const std::string& key : keys) {
    auto value = object.find(key);
    check_io(value != object.end(), "no key '", key, "'; the object has ", names(object),
             " (--jsonl-keys names the keys to take)");
    if (rules.values == DocumentRules::Values::kJson) {
      document.texts.push_back(value->dump());
      continue;
    }
    check_io(value->is_string(), "the value of '", key, "' is of type ", value->type_name(),
             ", not a string");
    document.texts.push_back(std::move(value->get_ref<std::string&>()));
  }
  return document;
}

Documents parse_block(const Block& block, const DocumentRules& rules) {
  Documents found;
  check_io(rules.values == DocumentRules::Values::kStrings ||
               block.file->format == InputFile::Format::kJsonLines,
           block.file->path, " is text; conversations (--chat-template) come as JSON lines");
  if (block.file->format == InputFile::Format::kJsonLines)
    parse_lines(block, rules, found);
  else if (rules.separator.empty())
    add_text(block.text, rules, found);
  else
    part_text(block, rules, found);
  return found;
}

}  // namespace neox
