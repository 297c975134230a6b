#include "launch/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr size_t kMaxEntries = 65536;  // Slurm's own bound of a range
constexpr size_t kLongestName = 255;   // of the Domain Name System

using Texts = std::vector<std::string>;

// A number of up to 18 digits and nothing else; -1 where it is not one.
int64_t number_of(std::string_view text) {
  int64_t value = -1;
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos)
    return -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

struct Hostlist {
  const std::string& text;  // for messages

  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    check_usage(ok, "the host list '", text, "' is malformed: ", parts...);
  }

  // "007" and "3-12": the numbers, as wide as the lower bound.
  void add_range(std::string_view range, Texts& numbers) const {
    size_t dash = range.find('-');
    std::string_view low_text = range.substr(0, dash);
    int64_t low = number_of(low_text);
    int64_t high = dash == range.npos ? low : number_of(range.substr(dash + 1));
    require(low >= 0 && high >= low, "'", range, "' is neither a number nor a range");
    require(static_cast<uint64_t>(high - low) < kMaxEntries - numbers.size(), "'", range,
            "' brings it to more than ", kMaxEntries, " hosts");
    for (int64_t n = low; n <= high; ++n) {
      std::string digits = std::to_string(n);
      if (digits.size() < low_text.size()) digits.insert(0, low_text.size() - digits.size(), '0');
      numbers.push_back(digits);
    }
  }

  // Every name so far with every one of these behind it.
  Texts extended(const Texts& names, const Texts& ends) const {
    require(names.size() * ends.size() <= kMaxEntries, "more than ", kMaxEntries, " hosts");
    Texts longer;
    for (const std::string& name : names)
      for (const std::string& end : ends) {
        longer.push_back(name + end);
        require(longer.back().size() <= kLongestName, "a name of more than ", kLongestName,
                " characters");
      }
    return longer;
  }

  // One item of the list.
  Texts expand(std::string_view item) const {
    Texts names = {""};
    while (!item.empty()) {
      size_t open = std::min(item.find('['), item.size()), close = item.find(']');
      require(close == item.npos || close > open, "a ']' closes nothing");
      names = extended(names, {std::string(item.substr(0, open))});
      if (open == item.size()) break;
      require(close != item.npos, "a '[' is not closed");
      std::string_view inside = item.substr(open + 1, close - open - 1);
      require(inside.find('[') == inside.npos, "brackets in brackets");
      Texts numbers;
      for (const std::string& range : split(inside, ',')) add_range(range, numbers);
      names = extended(names, numbers);
      item.remove_prefix(close + 1);
    }
    return names;
  }

  // The items between the commas that stand outside of brackets.
  std::vector<std::string_view> items() const {
    std::vector<std::string_view> found;
    size_t begin = 0, end = 0;
    for (int depth = 0; end <= text.size(); ++end) {
      if (end == text.size() || (text[end] == ',' && depth == 0)) {
        require(end > begin, "an entry is empty");
        found.push_back(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
      } else if (text[end] == '[') {
        ++depth;
      } else if (text[end] == ']') {
        --depth;
      }
    }
    return found;
  }
};

}  // namespace

std::vector<std::string> expand_hostlist(const std::string& list) {
  Hostlist hostlist{list};
  for (char c : list)
    hostlist.require(c > ' ' && c < 127 && c != '(' && c != ')', "'", c, "' in it");
  Texts hosts;
  for (std::string_view item : hostlist.items()) {
    Texts more = hostlist.expand(item);
    hostlist.require(hosts.size() + more.size() <= kMaxEntries, "more than ", kMaxEntries,
                     " hosts");
    hosts.insert(hosts.end(), more.begin(), more.end());
  }
  return hosts;
}

std::vector<int> expand_tasks_per_node(const std::string& list) {
  std::vector<int> tasks;
  for (const std::string& item : split(list, ',')) {
    size_t open = item.find("(x");
    int64_t count = number_of(std::string_view(item).substr(0, open)), times = 1;
    if (open != item.npos && item.ends_with(')'))
      times = number_of(std::string_view(item).substr(open + 2, item.size() - open - 3));
    else if (open != item.npos)
      times = -1;
    check_usage(count >= 1 && times >= 1, "the list of tasks per node '", list, "' is malformed: '",
                item, "' is neither N nor N(xTIMES)");
    check_usage(count <= 1'000'000 && static_cast<uint64_t>(times) <= kMaxEntries - tasks.size(),
                "the list of tasks per node '", list, "' is too long: '", item, "'");
    tasks.insert(tasks.end(), static_cast<size_t>(times), static_cast<int>(count));
  }
  return tasks;
}

}  // namespace neox
