#include "tokenizer/bpe_added.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

using unicode::Properties;

bool is_word_before(std::string_view text, size_t at) {
  return at > 0 && Properties::get().word_character(unicode::read_before(text, at).value);
}

bool is_word_after(std::string_view text, size_t at) {
  return at < text.size() && Properties::get().word_character(unicode::read(text, at).value);
}

std::vector<std::pair<std::string, int32_t>> contents_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::pair<std::string, int32_t>> contents;
  std::map<std::string_view, int32_t> ids;
  for (const AddedToken& token : tokens) {
    check_io(!token.content.empty(), "the added token ", token.id, " is empty");
    auto [other, fresh] = ids.emplace(token.content, token.id);
    check_io(fresh, "the added tokens ", token.id, " and ", other->second, " both match \"",
             token.content, "\"");
    contents.emplace_back(token.content, static_cast<int32_t>(contents.size()));
  }
  return contents;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), contents_(contents_of(tokens_)) {
  if (!tokens_.empty() && tokens_[0].content.size() > 1) start_ = tokens_[0].content.substr(0, 2);
  for (const AddedToken& token : tokens_) {
    starts_[static_cast<uint8_t>(token.content[0])] = true;
    if (!token.content.starts_with(start_)) start_.clear();
  }
}

// The next place where a token may stand. In most texts "<" is frequent and "<|" is not, and even
// less so where "|" is looked for.
size_t AddedTokenMatcher::next_start(std::string_view text, size_t from) const {
  if (!start_.empty()) {
    for (size_t at = from; (at = text.find(start_[1], at + 1)) != text.npos;)
      if (text[at - 1] == start_[0]) return at - 1;
    return text.size();
  }
  while (from < text.size() && !starts_[static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

// The longest token at the leftmost place where one stands.
AddedTokenMatcher::Match AddedTokenMatcher::next_match(std::string_view text, size_t from) const {
  for (size_t start = from; (start = next_start(text, start)) < text.size(); ++start) {
    Match found{start, start, nullptr};
    contents_.each_prefix(text.substr(start), [&](size_t bytes, int32_t token) {
      found.end = start + bytes, found.token = &tokens_[static_cast<size_t>(token)];
    });
    if (found.token) return found;
  }
  return {text.size(), text.size(), nullptr};
}

void AddedTokenMatcher::split(std::string_view text, const std::function<void(int32_t)>& token,
                              const std::function<void(std::string_view)>& piece) const {
  if (tokens_.empty()) return text.empty() ? void() : piece(text);
  size_t done = 0;
  for (size_t from = 0;;) {
    Match match = next_match(text, from);
    if (!match.token) break;
    from = match.end;  // the search goes on here even where rstrip takes more
    auto [start, end, found] = match;
    if (found->single_word && (is_word_before(text, start) || is_word_after(text, end))) continue;
    if (found->lstrip) start = std::max(unicode::skip_spaces_back(text, start), done);
    if (found->rstrip) end = unicode::skip_spaces(text, end);
    if (done < start) piece(text.substr(done, start - done));
    if (start < end) token(found->id);  // not where another token's rstrip took it
    done = end;
  }
  if (done < text.size()) piece(text.substr(done));
}

}  // namespace neox
