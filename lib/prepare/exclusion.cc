#include "prepare/exclusion.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace neox {
namespace {

bool fits(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

Exclusion::Exclusion(const std::vector<std::string>& patterns) {
  for (std::string text : patterns) {
    while (text.ends_with('/')) text.pop_back();  // of a directory
    patterns_.push_back({text});
  }
}

bool Exclusion::takes(std::string_view path) {
  if (patterns_.empty()) return false;
  while (path.starts_with("./")) path.remove_prefix(2);
  std::vector<std::string> names = split(path, '/');
  auto takes_it = [&](const Pattern& pattern) {
    if (pattern.text.find('/') != std::string::npos) return fits(pattern.text, std::string(path));
    return std::ranges::any_of(names, [&](const auto& name) { return fits(pattern.text, name); });
  };
  auto found = std::ranges::find_if(patterns_, takes_it);
  if (found == patterns_.end()) return false;
  if (found->count++ == 0) found->first = path;
  return true;
}

void Exclusion::report(const std::string& where) const {
  for (const Pattern& pattern : patterns_)
    if (pattern.count > 0)
      log_info("left out by --exclude '", pattern.text, "': ", pattern.count,
               where.empty() ? "" : " of " + where, pattern.count > 1 ? ", such as " : ": ",
               pattern.first);
}

std::vector<std::string> Exclusion::idle() const {
  std::vector<std::string> texts;
  for (const Pattern& pattern : patterns_)
    if (pattern.count == 0) texts.push_back(pattern.text);
  return texts;
}

}  // namespace neox
