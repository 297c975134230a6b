#include "prepare/json_line.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/utf8.h"
#include "prepare/json_members.h"
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
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What Python reads and the standard does not know: "?" for escapes of lone surrogates in strings;
// outside them null for NaN, Infinity and -Infinity, and no exponents that are too large.
class PythonJson {
 public:
  explicit PythonJson(std::string_view line) : line_(line) {
    out_.reserve(line.size());
    for (bool in_string = false; at_ < line_.size();) {
      copy(plain(in_string));
      if (at_ == line_.size()) break;
      if (line_[at_] == '"') in_string = !in_string;
      if (!(in_string ? copy_escape() : replace_number())) copy(1);
    }
  }
  const std::string& text() const { return out_; }
  bool lone_surrogates() const { return lone_surrogates_; }

 private:
  void copy(size_t bytes) {
    out_ += line_.substr(at_, bytes);
    at_ += bytes;
  }

  // Bytes from at_ on among which nothing begins that counts here.
  size_t plain(bool in_string) const {
    size_t end = at_;
    auto counts = [&](char c) {
      if (c == '"') return true;
      return in_string ? c == '\\' : c == 'N' || c == 'I' || c == '-' || c == 'e' || c == 'E';
    };
    while (end < line_.size() && !counts(line_[end])) ++end;
    return end - at_;
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
    return at_ > 0 && is_digit(line_[at_ - 1]) && replace_exponent();
  }

  bool replace_exponent() {
    if (line_[at_] != 'e' && line_[at_] != 'E') return false;
    size_t digits = at_ + 1;
    if (digits < line_.size() && (line_[digits] == '+' || line_[digits] == '-')) ++digits;
    size_t end = digits;
    while (end < line_.size() && is_digit(line_[end])) ++end;
    if (end == digits || !is_infinite(end)) return false;
    out_ += "e0";
    at_ = end;
    return true;
  }

  // The number whose exponent is at at_ and that ends there.
  bool is_infinite(size_t end) const {
    size_t begin = line_.find_last_not_of("0123456789.+-", at_ - 1) + 1;
    double value = 0;
    auto error = std::from_chars(line_.data() + begin, line_.data() + end, value).ec;
    bool tiny = line_[at_ + 1] == '-';
    return error == std::errc::result_out_of_range && !tiny;
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
  if (text.size() > kLongest) text = concat(first_characters(text, kLongest), " ...");
  return printable(text);  // the library may have read half of a character
}

// Where the text had to be changed for it, `line` is what was read, kept in `storage`.
Json parse_json(std::string_view& line, std::string& storage, bool& repaired) {
  size_t zero = line.find('\0');  // where the library ends
  check_io(zero == line.npos, "not valid JSON: column ", zero + 1, ": a byte of value 0");
  try {
    return Json::parse(line);
  } catch (const Json::exception& e) {
    PythonJson python(line);
    std::string error = describe(e);
    check_io(python.text() != line, "not valid JSON: ", error);
    repaired |= python.lone_surrogates();
    line = storage = python.text();
    try {
      return Json::parse(line);
    } catch (const Json::exception& again) { fail(Exit::kIo, "not valid JSON: ", describe(again)); }
  }
}

std::string names(const Json& object) {
  std::vector<std::string> found;
  for (const auto& item : object.items()) found.push_back("'" + item.key() + "'");
  return found.empty() ? "no key at all" : join(found, ", ");
}

// A key as it is meant.
std::string key_of(std::string_view text) {
  if (text.find('\\') == std::string::npos) return std::string(text);
  Json key = Json::parse(concat('"', text, '"'), nullptr, false);
  return key.is_string() ? key.get<std::string>() : std::string(text);
}

// Strings longer than this are taken in pieces, since a parsed line takes many times its size.
constexpr size_t kLongString = 1 << 22;

// A piece of a string that ends behind a space: no escape and no character lies across its end.
std::string_view take_piece(std::string_view& text) {
  size_t space = text.find(' ', std::min(text.size(), kLongString / 4));
  std::string_view piece = text.substr(0, space == std::string::npos ? space : space + 1);
  text.remove_prefix(piece.size());
  return piece;
}

bool is_long_string(std::string_view value) {
  return value.front() == '"' && value.size() > kLongString;
}

// Whether what it is about is no JSON to Python either, once it is spelled in the standard's way:
// numbers may be larger than simdjson's, and levels more.
bool is_certain(simdjson::error_code error) {
  using namespace simdjson;
  constexpr error_code kCertain[] = {TAPE_ERROR,   STRING_ERROR,    T_ATOM_ERROR,
                                     F_ATOM_ERROR, N_ATOM_ERROR,    UNESCAPED_CHARS,
                                     EMPTY,        UNCLOSED_STRING, INCORRECT_TYPE};
  return std::ranges::find(kCertain, error) != std::end(kCertain);
}

// Between the texts of a list, which are paragraphs to GPT-NeoX's tool (lm_dataformat).
constexpr std::string_view kBetweenParagraphs = "\n\n";

// A string, or a list of strings, which are joined; none for other values.
std::optional<std::string_view> text_in(simdjson::dom::element value, TextStore& storage) {
  std::string_view text;
  if (!value.get(text)) return storage.keep(text);
  simdjson::dom::array list;
  if (value.get(list)) return std::nullopt;
  std::vector<std::string> texts;
  for (simdjson::dom::element item : list) {
    if (item.get(text)) return std::nullopt;
    texts.emplace_back(text);
  }
  return storage.keep(join(texts, kBetweenParagraphs));
}

// Of messages, as conversations have them.
bool is_conversation(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object() &&
         (value[0].contains("role") || value[0].contains("from"));
}

// The same, which throws Error (74) for other values.
std::string text_of(Json& value, const std::string& key) {
  if (value.is_string()) return std::move(value.get_ref<std::string&>());
  auto is_string = [](const Json& item) { return item.is_string(); };
  bool list = value.is_array() && std::ranges::all_of(value, is_string);
  check_io(list, "the value of '", key, "' is ",
           is_conversation(value) ? "a conversation, which --chat-template NAME or DIR makes a text"
           : value.is_array()     ? "a list of other things than strings"
                                  : concat("of type ", value.type_name(), ", not a string"),
           value.is_object() ? concat("; the object has ", names(value), ", of which jq -c '.[\"",
                                      key, "\"]' makes the line")
                             : "");
  return join(value.get<std::vector<std::string>>(), kBetweenParagraphs);
}

}  // namespace

struct JsonLineParser::Fast {
  simdjson::dom::parser parser;
  std::vector<simdjson::dom::element> values;
};

JsonLineParser::JsonLineParser(const DocumentRules& rules, TextStore& storage)
    : rules_(rules), storage_(storage), fast_(std::make_unique<Fast>()) {}

JsonLineParser::~JsonLineParser() = default;

// simdjson reads what the standard allows, and what Python reads beside that once it is spelled in
// the standard's way. All else is left to the slow way, which knows what is wrong.
Document JsonLineParser::parse(std::string_view line, size_t readable) {
  return line.size() > kLongString ? parse_long(line) : parse_short(line, readable);
}

std::optional<Document> JsonLineParser::parse_good(std::string_view line, size_t readable) {
  Document document;
  Found found = line.size() > kLongString ? Found::kUnsure : find(line, readable, document);
  if (found == Found::kGood) return document;
  if (found == Found::kBad) return std::nullopt;
  try {
    return parse(line, readable);
  } catch (const Error&) { return std::nullopt; }
}

Document JsonLineParser::parse_short(std::string_view line, size_t readable) {
  Document document;
  return find(line, readable, document) == Found::kGood ? document : parse_slow(line);
}

JsonLineParser::Found JsonLineParser::find(std::string_view line, size_t readable,
                                           Document& document) {
  Found found = parse_fast(line, line, readable, document);
  if (found == Found::kGood) return found;
  std::string whole;
  std::string_view given = unicode::repair(line, whole);
  PythonJson python(given);
  document.repaired = given.data() != line.data() || python.lone_surrogates();
  bool json = rules_.values == DocumentRules::Values::kJson;
  std::string_view text = json ? storage_.keep(python.text()) : python.text();
  return text == line ? found : parse_fast(text, given, 0, document);
}

JsonLineParser::Found JsonLineParser::parse_fast(std::string_view line, std::string_view given,
                                                 size_t readable, Document& document) {
  static_assert(kSlack >= simdjson::SIMDJSON_PADDING);
  bool padded = readable >= line.size() + kSlack;
  simdjson::dom::object object;
  if (auto error = fast_->parser.parse(line.data(), line.size(), !padded).get(object))
    return is_certain(error) ? Found::kBad : Found::kUnsure;
  if (rules_.values == DocumentRules::Values::kJson)
    return take_json(line, given, document) ? Found::kGood : Found::kBad;
  const std::vector<std::string>& keys = rules_.keys;
  fast_->values.assign(keys.size(), {});
  std::vector<bool> found(keys.size());
  for (auto [name, value] : object)
    for (size_t key = 0; key < keys.size(); ++key)
      if (name == keys[key]) {
        fast_->values[key] = value;
        found[key] = true;
      }
  if (std::ranges::find(found, false) != found.end()) return Found::kBad;
  document.texts.clear();
  for (simdjson::dom::element value : fast_->values) {
    std::optional<std::string_view> text = text_in(value, storage_);
    if (!text) return Found::kBad;
    document.texts.push_back(*text);
  }
  return Found::kGood;
}

// Of a line that is valid JSON; false where a key is not there. given: the line before PythonJson,
// whose numbers count.
bool JsonLineParser::take_json(std::string_view line, std::string_view given,
                               Document& document) const {
  std::vector<std::optional<std::string_view>> values(rules_.keys.size());
  std::optional<std::string_view> reward;
  std::vector<JsonMember> members = json_members(line), as_given = json_members(given);
  check_io(members.size() == as_given.size(), "not valid JSON");
  for (size_t i = 0; i < members.size(); ++i) {
    const JsonMember& member = members[i];
    std::string name = key_of(member.key);
    for (size_t key = 0; key < values.size(); ++key)
      if (name == rules_.keys[key]) values[key] = member.value;
    if (rules_.reward && name == rules_.reward->key) reward = as_given[i].value;
    if (name == rules_.tools) document.tools = member.value;
  }
  if (rules_.reward && !reward) return false;
  auto found = [](const auto& value) { return value.has_value(); };
  if (!std::ranges::all_of(values, found)) return false;
  for (const auto& value : values) document.texts.push_back(*value);
  if (reward) document.reward = read_reward(*reward, rules_.reward->as);
  return true;
}

Document JsonLineParser::parse_slow(std::string_view line) {
  Document document;
  std::string repaired, read;
  std::string_view valid = unicode::repair(line, repaired);
  document.repaired = valid.data() != line.data();
  std::string_view given = valid;
  check_io(trim(valid) != "{",
           "not valid JSON: an object that goes over several lines, where each ",
           "line is one; jq -c . makes such lines, and --exclude leaves files out");
  Json object = parse_json(valid, read, document.repaired);
  check_io(object.is_object(), "a JSON ", object.type_name(), ", not an object with the key '",
           rules_.keys.front(), "'");
  bool strings = rules_.values == DocumentRules::Values::kStrings;
  for (const std::string& key : rules_.keys) {
    auto value = object.find(key);
    check_io(value != object.end(), "no key '", key, "'; the object has ", names(object),
             " (--jsonl-keys names the keys to take)");
    if (!strings) continue;
    document.texts.push_back(storage_.keep(text_of(*value, key)));
  }
  check_io(!rules_.reward || object.contains(rules_.reward->key), "no key '",
           rules_.reward ? rules_.reward->key : "", "'; the object has ", names(object),
           " (--reward-key names the key of the rewards)");
  if (strings) return document;
  check_io(take_json(storage_.keep(valid), storage_.keep(given), document),
           "two spellings of one key");
  return document;
}

// Reads the line with "" for its long strings, and these piece by piece.
Document JsonLineParser::parse_long(std::string_view line) {
  std::vector<JsonMember> members = json_members(line);
  std::string shorter;
  size_t copied = 0;
  for (const JsonMember& member : members) {
    if (!is_long_string(member.value)) continue;
    auto at = static_cast<size_t>(member.value.data() - line.data());
    shorter.append(line, copied, at - copied).append("\"\"");
    copied = at + member.value.size();
  }
  bool json = rules_.values == DocumentRules::Values::kJson;
  if (copied == 0 || json) return parse_slow(line);
  shorter.append(line, copied);
  Document document = parse_short(shorter, shorter.size());
  std::vector<bool> taken(rules_.keys.size());  // the last of equal keys counts
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    auto key = static_cast<size_t>(std::ranges::find(rules_.keys, key_of(member->key)) -
                                   rules_.keys.begin());
    bool counts = key < taken.size() && !taken[key];
    if (counts) taken[key] = true;
    if (!is_long_string(member->value)) continue;
    std::string text = long_string(member->value, document.repaired);  // also to see what is wrong
    if (counts) document.texts[key] = storage_.keep(std::move(text));
  }
  return document;
}

std::string JsonLineParser::long_string(std::string_view value, bool& repaired) {
  static const DocumentRules kPiece{.keys = {"text"}};
  std::string text;
  value = value.substr(1, value.size() - 2);
  text.reserve(value.size());
  while (!value.empty()) {
    TextStore storage;
    std::string line = concat("{\"text\": \"", take_piece(value), "\"}");
    Document piece = JsonLineParser(kPiece, storage).parse_short(line, line.size());
    text += piece.texts[0];
    repaired |= piece.repaired;
  }
  return text;
}

}  // namespace neox
