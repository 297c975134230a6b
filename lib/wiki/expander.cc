#include "wiki/expander.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "wiki/braces.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

constexpr size_t kMaxFrames = 30;
constexpr int kMaxDepth = 200;
constexpr size_t kMaxParsed = 10000;

constexpr std::string_view kNowiki = "nowiki";
constexpr char kMark = '\0';  // begins and ends what stands for a <nowiki> meanwhile

// <nowiki > or </nowiki >, from behind "<" or "</": the place behind it, or none.
size_t end_of_nowiki(std::string_view text, size_t at) {
  if (!has_word_at(text, at, kNowiki)) return kNone;
  size_t end = skip_space(text, at + kNowiki.size());
  return end < text.size() && text[end] == '>' ? end + 1 : kNone;
}

// Takes <nowiki>...</nowiki> out, so that braces in it are text, and puts it back.
class HiddenNowiki {
 public:
  explicit HiddenNowiki(std::string_view text) {
    size_t done = 0;
    for (size_t at = text.find('<'); at != kNone; at = text.find('<', at)) {
      size_t inside = end_of_nowiki(text, at + 1);
      if (inside == kNone) {
        ++at;
        continue;
      }
      size_t end = close(text, inside);
      if (end == kNone) break;
      text_.append(text.substr(done, at - done)).append(mark(hidden_.size()));
      hidden_.emplace_back(text.substr(at, end - at));
      at = done = end;
    }
    if (!hidden_.empty()) text_.append(text.substr(done));
  }

  bool any() const { return !hidden_.empty(); }
  const std::string& text() const { return text_; }

  std::string restored(const std::string& text) const {
    std::string out;
    size_t done = 0;
    for (size_t at; (at = text.find(kMark, done)) != kNone;) {
      size_t end = text.find(kMark, at + 1);
      std::string_view word(text.data() + at, (end == kNone ? text.size() : end + 1) - at);
      size_t i = number_of(word);
      bool known = i < hidden_.size() && word == mark(i);
      out.append(text, done, at - done);
      out += known ? hidden_[i] : std::string(1, kMark);
      done = known ? at + word.size() : at + 1;
    }
    return out.append(text, done);
  }

 private:
  static std::string mark(size_t i) { return kMark + ("NOWIKI" + std::to_string(i)) + kMark; }

  static size_t number_of(std::string_view word) {
    size_t n = 0;
    for (char c : word) n = c >= '0' && c <= '9' ? n * 10 + static_cast<size_t>(c - '0') : n;
    return n;
  }

  static size_t close(std::string_view text, size_t at) {
    while ((at = text.find("</", at)) != kNone) {
      size_t end = end_of_nowiki(text, at + 2);
      if (end != kNone) return end;
      at += 2;
    }
    return kNone;
  }

  std::string text_;
  std::vector<std::string> hidden_;
};

// The name before "=", where the part has one: without quotes before it, which begin a text.
struct NamedPart {
  std::string_view name, value;
};

bool split_name(std::string_view part, NamedPart& named) {
  size_t at = find_char<'=', '\''>(part, 0);
  if (at == kNone || part[at] == '\'') return false;
  named = {strip(part.substr(0, at)), part.substr(at + 1)};
  return true;
}

// White space around a value is dropped, but not beside links.
std::string_view trimmed(std::string_view value) {
  return value.find("]]") == kNone ? strip(value) : value;
}

bool has_calls(std::string_view text) { return text.find("{{") != kNone; }

struct Deeper {
  explicit Deeper(int& depth) : depth_(++depth) {}
  ~Deeper() { --depth_; }
  int& depth_;
};

}  // namespace

std::string Expander::expand_page(std::string_view title, std::string_view text) {
  frames_.clear();
  depth_ = 0;
  budget_ = kBudget;
  if (parsed_.size() > kMaxParsed) parsed_.clear();
  std::string name(title);
  size_t colon = title.find(':');
  variables_ = {{"!", "|"},
                {"pagename", name},
                {"fullpagename", name},
                {"namespace", colon == kNone ? "" : name.substr(0, colon)},
                {"currentyear", clock_.year},
                {"currentmonth", clock_.month},
                {"currentday", clock_.day},
                {"currenthour", clock_.hour},
                {"currenttime", clock_.time}};
  return expand(text);
}

bool Expander::spend(size_t bytes) {
  budget_ -= static_cast<int64_t>(bytes);
  return budget_ >= 0;
}

std::string Expander::put_in(std::string text) {
  return spend(text.size()) ? std::move(text) : std::string();
}

std::string Expander::expand(std::string_view text) {
  if (frames_.size() >= kMaxFrames) return {};
  if (text.find("{{") == kNone) return std::string(text);
  Deeper deeper(depth_);
  if (depth_ > kMaxDepth || !spend(text.size())) return {};
  HiddenNowiki nowiki(text);
  if (nowiki.any()) text = nowiki.text();
  std::string out;
  size_t done = 0;
  for (const Span& span : match_braces(text, Braces::kCalls)) {
    if (span.begin > done) out.append(text.substr(done, span.begin - done));
    out += expand_call(text.substr(span.begin + 2, span.end - span.begin - 4));
    done = span.end;
  }
  out.append(text.substr(done));
  return nowiki.any() ? nowiki.restored(out) : out;
}

const std::string* Expander::variable(std::string_view title) const {
  for (const auto& [name, value] : variables_) {
    if (name.size() == title.size() && has_word_at(title, 0, name)) return &value;
  }
  return nullptr;
}

std::string Expander::full_title(std::string_view title) const {
  if (title.empty()) return {};
  if (title[0] == ':') return upper_first(title.substr(1));
  size_t colon = title.find(':');
  if (colon != kNone) {
    std::string space = upper_first(title.substr(0, colon));
    std::string_view line = title.substr(colon);
    if (site_.namespaces.contains(space)) return space.append(line.substr(0, line.find('\n')));
  }
  return site_.template_prefix() + upper_first(title);
}

std::string Expander::expand_call(std::string_view body) {
  if (budget_ < 0) return {};
  std::vector<std::string_view> parts = split_parts(body);
  std::string expanded = expand(strip(parts[0]));
  std::string_view title = expanded;
  bool substituted = false;
  for (std::string_view word : {"subst:", "safesubst:"}) {
    if (!substituted && has_word_at(title, 0, word)) {
      title.remove_prefix(word.size());
      substituted = true;
    }
  }
  if (const std::string* value = variable(title)) return put_in(*value);
  size_t colon = title.find(':');
  if (colon != kNone && count_characters(title.substr(0, colon)) > 1) {
    parts[0] = strip(title.substr(colon + 1));
    const Parameters* frame = frames_.empty() ? nullptr : &frames_.back().parameters;
    std::string value = call_parser_function(title.substr(0, colon), parts, frame);
    return has_calls(value) ? expand(value) : put_in(std::move(value));
  }
  return expand_template(title, body, parts, substituted);
}

Parameters Expander::parameters_of(const std::vector<std::string_view>& parts, bool substituted) {
  Parameters parameters;
  int unnamed = 0;
  for (size_t i = 1; i < parts.size(); ++i) {
    std::string expanded;
    std::string_view part = parts[i];
    if (!substituted && has_calls(part)) part = expanded = expand(part);
    NamedPart named;
    if (split_name(part, named)) {
      parameters[std::string(named.name)] = trimmed(named.value);
    } else {
      parameters[std::to_string(++unnamed)] = trimmed(part);
    }
  }
  return parameters;
}

const ParsedTemplate& Expander::parsed(const std::string& text) {
  auto found = parsed_.find(&text);
  if (found == parsed_.end()) found = parsed_.emplace(&text, parse_template(text)).first;
  return found->second;
}

std::string Expander::expand_template(std::string_view title, std::string_view body,
                                      const std::vector<std::string_view>& parts,
                                      bool substituted) {
  const std::string* text = templates_.find(full_title(title));
  if (!text) return {};
  Parameters parameters = parameters_of(parts, substituted);
  bool loop = std::ranges::any_of(frames_, [&](const Frame& frame) {
    return frame.text == text && frame.parameters == parameters;
  });
  if (loop) return "{{" + std::string(body) + "}}";
  const ParsedTemplate& pieces = parsed(*text);
  frames_.push_back({text, std::move(parameters)});
  std::string instance;
  substitute(pieces, frames_.back().parameters, 0, instance);
  std::string value = expand(instance);
  frames_.pop_back();
  return value;
}

void Expander::substitute(const ParsedTemplate& parsed, const Parameters& parameters, int depth,
                          std::string& out) {
  if (depth > kMaxParameterDepth || !spend(parsed.pieces.size())) return;
  for (const ParsedTemplate::Piece& piece : parsed.pieces) {
    if (!piece.parameter) {
      if (spend(piece.text.size())) out += piece.text;
      continue;
    }
    std::string made;
    std::string_view name = piece.parameter->plain_name.value_or("");
    if (!piece.parameter->plain_name) {
      substitute(piece.parameter->name, parameters, depth + 1, made);
      name = made = expand(made);
    }
    auto found = parameters.find(name);
    if (found != parameters.end()) {
      if (spend(found->second.size())) out += found->second;
    } else if (piece.parameter->otherwise) {
      std::string value;
      substitute(*piece.parameter->otherwise, parameters, depth + 1, value);
      out += has_calls(value) ? expand(value) : value;
    }
  }
}

}  // namespace neox::wiki
