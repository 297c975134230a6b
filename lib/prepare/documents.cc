#include "prepare/documents.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "prepare/json_line.h"
#include "prepare/wiki_articles.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

std::string_view take_line(std::string_view& text) {
  size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

class Parsing {
 public:
  Parsing(const Block& block, const DocumentRules& rules) : block_(block), rules_(rules) {}

  Documents run() {
    check_io(rules_.values == DocumentRules::Values::kStrings || is_json(block_.file->format),
             block_.file->path,
             " is text; conversations (--chat-template) come as JSON lines, or in a JSON array");
    if (is_json(block_.file->format))
      parse_lines();
    else if (block_.file->format == InputFile::Format::kWiki)
      parse_pages();
    else if (rules_.separator.empty())
      add_text(block_.text);
    else
      part_text();
    return std::move(found_);
  }

 private:
  void parse_lines() {
    std::string_view text = block_.text;
    const char* readable = text.data() + block_.text.capacity();
    JsonLineParser parser(rules_, found_.storage);
    bool array = block_.file->format == InputFile::Format::kJsonArray,
         fails = rules_.bad_lines == DocumentRules::BadLines::kFail;
    for (int64_t number = block_.line; !text.empty() && found_.error.empty(); ++number) {
      std::string_view line = take_line(text);
      if (array) line = trim(line);  // whose columns count from the element's beginning
      if (trim(line).empty()) continue;
      auto room = static_cast<size_t>(readable - line.data());
      try {
        auto document =
            fails || says_more() ? parser.parse(line, room) : parser.parse_good(line, room);
        if (document && rules_.turns)
          for (std::string_view value : document->texts)
            document->chats.push_back(rules_.turns(value, document->tools));
        document ? add(std::move(*document), number) : leave_out("", number);
      } catch (const Error& e) { add_bad_line(e.what(), number); }
    }
  }

  void parse_pages() {
    check_io(
        rules_.wiki != nullptr, block_.file->path,
        ": a dump of MediaWiki inside of an archive is not read, since its templates are looked "
        "for first; unpack the archive");
    rules_.wiki->for_articles(block_.text, [&](const wiki::Article& article) {
      Document& document = found_.documents.emplace_back();
      for (const std::string& key : rules_.keys) {
        const std::string* value = field_of(article, key);
        check_usage(value, block_.file->path, ": articles have no '", key,
                    "'; they have id, revid, url, title and text (--jsonl-keys)");
        document.texts.push_back(found_.storage.keep(std::string_view(*value)));
      }
    });
  }

  void part_text() {
    std::string_view text = block_.text;
    const char* begin = text.data();
    auto add_until = [&](const char* end) {
      std::string_view part(begin, static_cast<size_t>(end - begin));
      if (!trim(part).empty()) add_text(part);
    };
    while (!text.empty() && found_.error.empty()) {
      std::string_view line = take_line(text);
      if (!is_separator(line, rules_.separator)) continue;
      add_until(line.data());
      begin = text.data();
    }
    if (found_.error.empty()) add_until(text.data());
  }

  void add_text(std::string_view text) {
    std::string storage;
    std::string_view valid = unicode::repair(text, storage);
    bool repaired = valid.data() != text.data();
    int64_t line = block_.line;
    if (repaired) {
      // That of the first byte that is no Unicode.
      auto bad = std::mismatch(text.begin(), text.end(), valid.begin(), valid.end()).first;
      line += std::count(block_.text.data(), text.data() + (bad - text.begin()), '\n');
      valid = found_.storage.keep(std::move(storage));
    }
    add({.texts = std::vector(rules_.keys.size(), valid), .repaired = repaired}, line);
  }

  void add(Document document, int64_t line) {
    using Invalid = DocumentRules::InvalidUtf8;
    constexpr const char* kWhat = "bytes that are not UTF-8, or escapes of lone surrogates";
    if (document.repaired && rules_.invalid_utf8 == Invalid::kFail) {
      found_.error = place(line) + kWhat +
                     "; --invalid-utf8 replace puts U+FFFD or ? in their place, --invalid-utf8 "
                     "skip leaves such documents out; both count them";
      return;
    }
    if (document.repaired && rules_.invalid_utf8 == Invalid::kSkip) {
      return leave_out(kWhat, line);
    }
    if (document.repaired) say_replaced(kWhat, line);
    if (!document.reward.cut.empty())
      say_replaced(concat("the reward ", document.reward.cut, " by ", document.reward.value,
                          ": rewards are whole numbers"),
                   line);
    found_.documents.push_back(std::move(document));
  }

  void say_replaced(const std::string& what, int64_t line) {
    if (found_.replaced.size() < kBadLinesShown)
      found_.replaced.push_back(concat(block_.place_in_slice(line), ": ", what));
  }

  void add_bad_line(const std::string& what, int64_t line) {
    if (rules_.bad_lines == DocumentRules::BadLines::kSkip) return leave_out(what, line);
    found_.error = place(line) + what + "; --skip-bad-lines leaves such lines out and counts them";
  }

  void leave_out(const std::string& what, int64_t line) {
    ++found_.skipped;
    if (says_more()) found_.skipped_at.push_back(concat(block_.place_in_slice(line), ": ", what));
  }

  bool says_more() const { return found_.skipped_at.size() < kBadLinesShown; }

  // Of what ends the run; the rest is said by what each rank knows anyway.
  std::string place(int64_t line) const { return block_.place(line) + ": "; }

  const Block& block_;
  const DocumentRules& rules_;
  Documents found_;
};

}  // namespace

Documents parse_block(const Block& block, const DocumentRules& rules) {
  return Parsing(block, rules).run();
}

Reward read_reward(std::string_view json, RewardRule::As as) {
  auto value = nlohmann::json::parse(json, nullptr, false);
  if (value.is_discarded()) {  // numbers that Python's json has beside those of JSON
    check_io(as == RewardRule::As::kSign, "the reward ", json, " does not fit into 32 bits");
    return {.value = 1};
  }
  if (as == RewardRule::As::kSign) {
    bool none = value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
                (value.is_number() && value.get<double>() == 0) ||
                (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                (value.is_structured() && value.empty());
    return {.value = none ? -1 : 1};
  }
  if (value.is_boolean()) return {.value = value.get<bool>()};
  check_io(value.is_number(), "the reward is of type ", value.type_name(),
           ", not a number or true or false (--binary-reward takes any value)");
  auto number = value.get<double>();
  check_io(number >= -2147483648.0 && number < 2147483648.0, "the reward ", json,
           " does not fit into 32 bits");
  auto whole = static_cast<int32_t>(number);
  return {.value = whole, .cut = whole == number ? std::string_view() : json};
}

std::vector<std::string> DocumentRules::members() const {
  std::vector<std::string> all = keys;
  if (reward) all.push_back(reward->key);
  if (tools) all.push_back(*tools);
  return all;
}

bool DocumentRules::are_pairs() const {
  auto has = [this](const char* key) { return std::ranges::find(keys, key) != keys.end(); };
  return has("chosen") && has("rejected");
}

}  // namespace neox
