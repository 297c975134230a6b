#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <numeric>

#include "base/error.h"

namespace neox {
namespace {

std::string with_unit(double value, double base, std::span<const char* const> units) {
  size_t i = 0;
  while (std::abs(value) >= base && i + 1 < units.size()) value /= base, ++i;
  double size = std::abs(value);
  int digits = i == 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  if (i == 0 && value != std::floor(value)) digits = 2;
  return printed("%.*f%s%s", digits, value, *units[i] ? " " : "", units[i]);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string human_bytes(double bytes) {
  static const char* const kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  return with_unit(bytes, 1000, kUnits);
}

std::string human_count(double count) {
  static const char* const kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  return with_unit(count, 1000, kUnits);
}

std::string human_duration(double seconds) {
  if (std::llround(seconds) < 60) return printed("%.*f s", seconds < 10 ? 1 : 0, seconds);
  auto two = [](int64_t n, int64_t small, const char* big_unit, const char* small_unit) {
    return std::to_string(n / small) + big_unit + std::to_string(n % small) + small_unit;
  };
  int64_t s = std::llround(seconds);
  if (s < 3600) return two(s, 60, " min ", " s");
  if (s < 86400) return two(s / 60, 60, " h ", " min");
  return two(s / 3600, 24, " d ", " h");
}

std::string with_commas(int64_t n) {
  std::string text = std::to_string(n);
  for (auto i = static_cast<int64_t>(text.size()) - 3; i > (n < 0); i -= 3)
    text.insert(static_cast<size_t>(i), 1, ',');
  return text;
}

std::string counted(int64_t n, std::string_view noun) {
  return concat(n, " ", noun, n == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return lower;
}

bool equal_words(std::string_view a, std::string_view b) { return lower_case(a) == lower_case(b); }

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string printed(const char* pattern, ...) {
  std::va_list values, again;
  va_start(values, pattern);
  va_copy(again, values);
  int size = std::vsnprintf(nullptr, 0, pattern, values);
  check(size >= 0, "no text by the pattern ", pattern);
  std::string text(static_cast<size_t>(size), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(values);
  return text;
}

std::vector<std::string> in_columns(std::span<const std::vector<std::string>> rows, Align align) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      std::string space(widths[i] - row[i].size(), ' ');
      line += (i ? "  " : "") + (align == Align::kRight ? space + row[i] : row[i] + space);
    }
    line.resize(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}
template std::optional<int> number_of(std::string_view);
template std::optional<int64_t> number_of(std::string_view);
template std::optional<uint64_t> number_of(std::string_view);
template std::optional<double> number_of(std::string_view);

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t from = 0;;) {
    size_t to = text.find(separator, from);
    parts.emplace_back(text.substr(from, to - from));
    if (to == std::string_view::npos) return parts;
    from = to + 1;
  }
}

std::string_view trim(std::string_view text) {
  const char* space = " \t\r\n";
  size_t from = text.find_first_not_of(space);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(space) - from + 1);
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by,
                        size_t times) {
  if (what.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at; times > 0 && (at = text.find(what, done)) != text.npos; --times) {
    out.append(text.substr(done, at - done)).append(by);
    done = at + what.size();
  }
  return out.append(text.substr(done));
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) text += separator;
    text += parts[i];
  }
  return text;
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 256;  // the work grows with the square
  if (word.size() > kLongest) return "";
  // Short words are near to many.
  size_t best = (word.size() < 5 ? 1 : std::max<size_t>(2, word.size() / 4)) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    // No distance is less, and that of long words takes long.
    auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= best) continue;
    size_t d = edit_distance(word, candidate);
    if (d < best) best = d, found = candidate;
  }
  return found;
}

std::string did_you_mean(const std::string& near, std::string_view otherwise) {
  return near.empty() ? std::string(otherwise) : "; did you mean " + near + "?";
}

}  // namespace neox
