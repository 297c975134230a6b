#include "tokenizer/text_pattern.h"

#include <dlfcn.h>
#include <oniguruma.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

namespace neox {
namespace {

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

// The library, loaded where an expression is met, and apart from the symbols of the program: it has
// functions of the names regcomp, regexec and regfree that are not those of the C library.
struct Oniguruma {
  decltype(&onig_initialize) initialize;
  decltype(&onig_unicode_define_user_property) define_property;
  decltype(&onig_new) make;
  decltype(&onig_free) free;
  decltype(&onig_search) search;
  decltype(&onig_region_new) region_new;
  decltype(&onig_region_free) region_free;
  decltype(&onig_error_code_to_str) message;
  OnigEncoding utf8;
  OnigSyntaxType* syntax;

  static const Oniguruma& get() {
    static const Oniguruma library = load();
    return library;
  }

 private:
  static Oniguruma load();
};

constexpr const char* kLibrary = "libonig.so.5";

Oniguruma Oniguruma::load() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  check_io(library != nullptr, "its regular expression needs Oniguruma, and ", kLibrary,
           " cannot be loaded: ", library ? "" : ::dlerror(),
           "; install it (libonig5 of Debian and Ubuntu)");
  Oniguruma found;
  auto symbol = [&](auto& pointer, const char* name) {
    void* address = ::dlsym(library, name);
    check_io(address != nullptr, kLibrary, " has no ", name);
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(address);
  };
  symbol(found.initialize, "onig_initialize");
  symbol(found.define_property, "onig_unicode_define_user_property");
  symbol(found.make, "onig_new");
  symbol(found.free, "onig_free");
  symbol(found.search, "onig_search");
  symbol(found.region_new, "onig_region_new");
  symbol(found.region_free, "onig_region_free");
  symbol(found.message, "onig_error_code_to_str");
  symbol(found.utf8, "OnigEncodingUTF8");
  symbol(found.syntax, "OnigSyntaxOniguruma");
  return found;
}

std::string message_of(int code, OnigErrorInfo* info = nullptr) {
  OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
  int bytes = Oniguruma::get().message(message, code, info);
  return {reinterpret_cast<const char*>(message), static_cast<size_t>(bytes)};
}

// Where a match was found, with room that a thread uses again.
OnigRegion* region_of_thread() {
  struct Free {
    void operator()(OnigRegion* region) const { Oniguruma::get().region_free(region, 1); }
  };
  thread_local std::unique_ptr<OnigRegion, Free> region(Oniguruma::get().region_new());
  return region.get();
}

// Classes of code points by unicode_tables.h, whatever version of Unicode Oniguruma has; it keeps
// the pointers, and has room for 20.
void define_classes() {
  using Ranges = std::vector<OnigCodePoint>;  // their number, then first and last of each
  static std::map<std::string, Ranges> classes;
  auto add = [&](const std::string& name, char32_t first, char32_t last) {
    Ranges& ranges = classes.try_emplace(name, Ranges{0}).first->second;
    if (ranges[0] && ranges.back() + 1 == first)
      ranges.back() = last;
    else
      ++ranges[0], ranges.insert(ranges.end(), {first, last});
  };
  for (const unicode::CategoryRange& range : unicode::categories) {
    std::string name = range.category;
    add(name.substr(0, 1), range.first, range.last);
    bool of_two = name[0] == 'L' || name[0] == 'S' || name == "Mn" || name == "Nd" ||
                  name == "No" || name == "Pc";
    if (of_two) add(name, range.first, range.last);
  }
  for (const unicode::CodeRange& range : unicode::han) add("Han", range.first, range.last);
  for (const unicode::CodeRange& range : unicode::expression_word)
    add("Word", range.first, range.last);
  for (auto& [name, ranges] : classes) {
    int code = Oniguruma::get().define_property(name.c_str(), ranges.data());
    check_io(code == ONIG_NORMAL, "Oniguruma takes no class ", name, ": ", message_of(code));
  }
}

// With the names of those classes. Between brackets \w lacks six characters that it has alone.
std::string with_classes(std::string_view expression) {
  struct Name {
    std::string_view written, here, in_brackets;
  };
  static const Name kNames[] = {
      {"\\d", "\\p{Nd}", "\\p{Nd}"},
      {"\\D", "\\P{Nd}", "\\P{Nd}"},
      {"\\w", "\\p{Word}", "[\\p{Word}&&[^\u00b2\u00b3\u00b9\u00bc-\u00be]]"},
      {"\\W", "\\P{Word}", "[\\P{Word}\u00b2\u00b3\u00b9\u00bc-\u00be]"},
      {"\\p{Letter}", "\\p{L}", "\\p{L}"},
      {"\\p{Mark}", "\\p{M}", "\\p{M}"},
      {"\\p{Number}", "\\p{N}", "\\p{N}"},
      {"\\p{Symbol}", "\\p{S}", "\\p{S}"},
      {"\\p{Punctuation}", "\\p{P}", "\\p{P}"}};
  std::string text;
  for (int brackets = 0; !expression.empty();) {
    auto name = std::ranges::find_if(
        kNames, [&](const Name& one) { return expression.starts_with(one.written); });
    bool known = name != std::end(kNames);
    size_t bytes = known ? name->written.size() : expression[0] == '\\' ? 2 : 1;
    brackets += (expression[0] == '[') - (expression[0] == ']');
    text += !known ? expression.substr(0, bytes) : brackets > 0 ? name->in_brackets : name->here;
    expression.remove_prefix(std::min(bytes, expression.size()));
  }
  return text;
}

}  // namespace

TextPattern TextPattern::literal(std::string text) {
  TextPattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

TextPattern TextPattern::expression(const std::string& regex) {
  const Oniguruma& onig = Oniguruma::get();
  static std::once_flag begun;
  std::call_once(begun, [&] {
    OnigEncoding encodings[] = {onig.utf8};
    onig.initialize(encodings, 1);
    define_classes();
  });
  std::string named = with_classes(regex);
  const OnigUChar* from = bytes_of(named);
  OnigRegex made = nullptr;
  OnigErrorInfo info;
  int code =
      onig.make(&made, from, from + named.size(), ONIG_OPTION_NONE, onig.utf8, onig.syntax, &info);
  check_io(code == ONIG_NORMAL, "not a regular expression of Oniguruma: ", message_of(code, &info),
           ": ", regex);
  TextPattern pattern;
  pattern.text_ = regex;
  pattern.regex_ = {made, onig.free};
  return pattern;
}

// An empty match right behind another one does not count (as in the Rust crate onig 6).
void TextPattern::find(std::string_view text,
                       const std::function<void(size_t, size_t)>& found) const {
  if (!regex_) {
    for (size_t at = text.find(text_); at != text.npos; at = text.find(text_, at + text_.size()))
      found(at, at + text_.size());
    return;
  }
  const OnigUChar *from = bytes_of(text), *to = from + text.size();
  const Oniguruma& onig = Oniguruma::get();
  OnigRegion* region = region_of_thread();
  size_t last = text.npos;  // where the match before ended
  for (size_t at = 0; at <= text.size();) {
    int code = onig.search(regex_.get(), from, to, from + at, to, region, ONIG_OPTION_NONE);
    if (code == ONIG_MISMATCH) return;
    check_io(code >= 0, "Oniguruma stopped in a text of ", text.size(),
             " bytes: ", message_of(code), "; it looked for ", text_);
    auto begin = static_cast<size_t>(region->beg[0]), end = static_cast<size_t>(region->end[0]);
    if (begin == end && end == last) {
      at += at < text.size() ? unicode::read(text, at).bytes : 1;
      continue;
    }
    at = last = end;
    found(begin, end);
  }
}

std::string_view TextPattern::replaced(std::string_view text, std::string_view content,
                                       std::string& storage) const {
  size_t copied = 0;
  bool changed = false;
  find(text, [&](size_t begin, size_t end) {
    if (!changed) storage.clear();
    changed = true;
    storage.append(text, copied, begin - copied).append(content);
    copied = end;
  });
  return changed ? storage.append(text, copied) : text;
}

}  // namespace neox
