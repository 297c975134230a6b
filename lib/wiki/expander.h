// Templates, parameters, parser functions and variables of one page, replaced by what they give.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wiki/parser_functions.h"
#include "wiki/site.h"
#include "wiki/templates.h"

namespace neox::wiki {

// What {{CURRENTYEAR}} and its like give.
struct Clock {
  std::string year = "1970", month = "01", day = "01", hour = "00", time = "00:00:00";
};

// As wikiextractor expands, within limits: templates within templates up to 30 deep, calls within
// calls up to 200 deep, and for each page as much text as kBudget. What is beyond gives nothing. A
// template that calls itself with the same parameters stays as it is written. For one thread.
class Expander {
 public:
  // Bytes that are searched or put in, and parts of templates, for a page.
  static constexpr int64_t kBudget = 16 << 20;

  Expander(const Site& site, const Templates& templates, const Clock& clock)
      : site_(site), templates_(templates), clock_(clock) {}

  // The text of a page of that title.
  std::string expand_page(std::string_view title, std::string_view text);

 private:
  struct Frame {
    const std::string* text;  // of the template
    Parameters parameters;
  };

  std::string expand(std::string_view text);
  std::string expand_call(std::string_view body);
  std::string expand_template(std::string_view title, std::string_view body,
                              const std::vector<std::string_view>& parts, bool substituted);
  void substitute(const ParsedTemplate& parsed, const Parameters& parameters, int depth,
                  std::string& out);
  Parameters parameters_of(const std::vector<std::string_view>& parts, bool substituted);
  const std::string* variable(std::string_view title) const;
  std::string full_title(std::string_view title) const;
  const ParsedTemplate& parsed(const std::string& text);
  bool spend(size_t bytes);
  std::string put_in(std::string text);  // within the budget, or nothing

  const Site& site_;
  const Templates& templates_;
  const Clock& clock_;
  std::vector<std::pair<std::string_view, std::string>> variables_;  // by names in lower case
  std::deque<Frame> frames_;  // whose parameters stay in their place
  int depth_ = 0;
  int64_t budget_ = 0;
  std::unordered_map<const std::string*, ParsedTemplate> parsed_;
};

}  // namespace neox::wiki
