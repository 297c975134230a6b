// The walker over yaml-cpp's events.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "base/error.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "config/value.h"

namespace neox {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxKeys = 2000;  // of one map
constexpr size_t kMaxBytes = 1 << 20;

Value::Kind kind_of_plain(const std::string& text) {
  static const std::regex kNumber(R"([-+]?((0|[1-9][\d_]*)(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?)");
  static const char* const kWords[] = {"true", "True", "TRUE", "false", "False", "FALSE",
                                       "yes",  "Yes",  "YES",  "no",    "No",    "NO",
                                       "on",   "On",   "ON",   "off",   "Off",   "OFF"};
  if (std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords))
    return Value::Kind::kBool;
  bool number = text.size() < 64 && std::regex_match(text, kNumber);
  return number ? Value::Kind::kNumber : Value::Kind::kText;
}

class Walker : public YAML::EventHandler {
 public:
  Walker(const std::string& text, std::string name) : text_(text), name_(std::move(name)) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++) fail_at(mark, "something stands after the end of the document", kOneDocument);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add({}, mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(mark); }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { refuse_anchor(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& text) override {
    refuse_tag(mark, tag);
    check_quote(mark);
    // It goes into checkpoints, whose texts are JSON.
    if (!is_utf8(text))
      fail_at(mark, "'", printable(text),
              "' is not UTF-8; rename the path, or save the file as UTF-8");
    Value value;
    value.kind = tag == "?" ? kind_of_plain(text) : Value::Kind::kText;
    value.text = text;
    add(std::move(value), mark, text);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, Value::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, Value::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

  Value take() { return std::move(root_); }

  template <class... Parts>
  [[noreturn]] void fail_at(const YAML::Mark& mark, const Parts&... parts) const {
    fail(Exit::kUsage, place(mark).text(), ": ", parts...);
  }

  // What people write that YAML does not have.
  std::string hint(const YAML::Mark& mark) const {
    std::istringstream lines(text_);
    std::string line;
    for (int i = 0; i <= mark.line; ++i) std::getline(lines, line);
    size_t first = line.find_first_not_of(" \t");
    if (first == line.npos) return "";
    if (line.find('\t') < first) return "; this line begins with a tab, where YAML has only spaces";
    return line.compare(first, 2, "//") == 0 ? "; a comment begins with #, not with //" : "";
  }

  Place place(const YAML::Mark& mark) const {
    bool known = !mark.is_null() && name_.rfind("--", 0) != 0;
    return {name_, known ? mark.line + 1 : 0};
  }

 private:
  static constexpr const char* kOneDocument =
      "; a file holds one map of keys, so remove the rest (or a bracket closes too early)";

  struct Open {
    Value value;
    bool has_key = false;  // of a map: the next node is the value of key
    std::string key, spelling;
    Place key_place;
    std::vector<std::pair<std::string, int>> spellings;  // of its keys, with their lines
  };

  void refuse_anchor(const YAML::Mark& mark) const {
    fail_at(mark, "anchors (&) and aliases (*) are not read; write the value out");
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.size() > 1)
      fail_at(mark, "the tag ", tag, " is not read; a value's type shows in how it is written");
  }

  // yaml-cpp takes the end of the file for a quote that is missing.
  void check_quote(const YAML::Mark& mark) const {
    auto at =
        static_cast<size_t>(std::max(mark.pos, 0)) + (text_.starts_with("\xEF\xBB\xBF") ? 3 : 0);
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'')) return;
    const char quote = text_[at];
    const std::string escaped = quote == '"' ? "\\" : "''";
    for (size_t end = at + 1; end < text_.size(); ++end)
      if (text_.compare(end, escaped.size(), escaped) == 0)
        ++end;
      else if (text_[end] == quote)
        return;
    fail_at(mark, "the text that begins with ", quote, " in column ", mark.column + 1,
            " has no closing ", quote);
  }

  void open(const YAML::Mark& mark, const std::string& tag, Value::Kind kind) {
    refuse_tag(mark, tag);
    if (stack_.size() >= kMaxDepth) fail_at(mark, "more than ", kMaxDepth, " brackets deep");
    if (!stack_.empty() && needs_key())
      fail_at(mark, "a key must be a name, not a list or a map; is a bracket not closed?");
    Open next;
    next.value.kind = kind;
    next.value.place = place(mark);
    stack_.push_back(std::move(next));
  }

  void close() {
    Value done = std::move(stack_.back().value);
    stack_.pop_back();
    attach(std::move(done));
  }

  bool needs_key() const {
    return stack_.back().value.kind == Value::Kind::kMap && !stack_.back().has_key;
  }

  void add(Value value, const YAML::Mark& mark, const std::string& key = "") {
    if (!stack_.empty() && needs_key()) return set_key(key, mark);
    value.place = place(mark);
    attach(std::move(value));
  }

  void set_key(const std::string& spelling, const YAML::Mark& mark) {
    Open& map = stack_.back();
    if (spelling.empty())
      fail_at(mark, "a key is missing here; look for a comma or a colon too much", hint(mark));
    map.spelling = map.key = spelling;
    std::replace(map.key.begin(), map.key.end(), '-', '_');
    for (size_t i = 0; i < map.value.names.size(); ++i)
      if (map.value.names[i] == map.key)
        fail_at(mark, "'", spelling, "' stands here and at line ", map.spellings[i].second,
                map.spellings[i].first == spelling ? "" : " as '" + map.spellings[i].first + "'",
                "; remove one of them");
    if (map.value.names.size() >= kMaxKeys)
      fail_at(mark, "more than ", kMaxKeys, " keys. Is this the right file?");
    map.has_key = true;
    map.key_place = place(mark);
  }

  void attach(Value value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = stack_.back();
    if (parent.value.kind == Value::Kind::kMap) {
      value.place = parent.key_place;  // where people look for it
      parent.value.names.push_back(parent.key);
      parent.spellings.emplace_back(parent.spelling, parent.key_place.line);
      parent.has_key = false;
    }
    parent.value.items.push_back(std::move(value));
  }

  const std::string& text_;
  std::string name_;
  std::vector<Open> stack_;
  Value root_;
  int documents_ = 0;
};

}  // namespace

Value parse_yaml(const std::string& text, const std::string& name) {
  check_usage(text.size() <= kMaxBytes, name, ": ", text.size(), " bytes; a configuration has at ",
              "most ", kMaxBytes, ". Is this the right file?");
  check_usage(text.find('\0') == std::string::npos, name,
              ": holds a zero byte, so it is not text. Is this the right file?");
  std::istringstream stream(text);
  Walker walker(text, name);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(walker)) {}
  } catch (const YAML::Exception& e) {
    walker.fail_at(e.mark, "not valid YAML or JSON: ", e.msg, " (column ", e.mark.column + 1,
                   "); a missing comma, colon, quote or bracket before this place is the usual "
                   "cause",
                   walker.hint(e.mark));
  }
  return walker.take();
}

}  // namespace neox
