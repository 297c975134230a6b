// The templates of a wiki: gathered from its dump in a first pass, unchanged and shared by all
// threads afterwards.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wiki/site.h"

namespace neox::wiki {

class Templates {
 public:
  // Keeps the page where it is in the template namespace. A redirect is kept as one; of other pages
  // what they give where they are included: without comments and <noinclude>, or what is between
  // <onlyinclude>. Of pages with one title the last counts.
  void add(const Page& page, const Site& site);
  // Adds what others gathered from later parts of the dump.
  void merge(Templates&& later);

  // By the full title, "Template:Cite book"; follows one redirect. Null where there is none.
  // Thread-safe while nothing is added.
  const std::string* find(const std::string& title) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    bool redirect;
    std::string text;  // or the title that it leads to
  };
  std::unordered_map<std::string, Entry> entries_;
};

struct ParsedParameter;

// A template's text, cut at its parameters. Refers to the text.
struct ParsedTemplate {
  struct Piece {
    std::string_view text;
    std::shared_ptr<const ParsedParameter> parameter;  // none: text
  };
  std::vector<Piece> pieces;
};

// {{{name|value}}}; both may hold parameters and calls.
struct ParsedParameter {
  ParsedTemplate name;
  // The name where it holds neither parameters nor calls.
  std::optional<std::string_view> plain_name;
  std::optional<ParsedTemplate> otherwise;
};

// Parameters within names and values of parameters are substituted up to this depth.
inline constexpr int kMaxParameterDepth = 16;

ParsedTemplate parse_template(std::string_view text);

}  // namespace neox::wiki
