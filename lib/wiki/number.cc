#include "wiki/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "wiki/tables.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

const int64_t* whole(const Number& n) { return std::get_if<int64_t>(&n); }

// One operation on two whole numbers, which tells of overflow, or on doubles.
template <class Whole, class Real>
Number combine(const Number& a, const Number& b, Whole on_whole, Real on_real) {
  if (whole(a) && whole(b)) {
    int64_t result = 0;
    if (on_whole(*whole(a), *whole(b), &result)) throw NoNumber{};
    return result;
  }
  return on_real(to_double(a), to_double(b));
}

Number whole_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) throw NoNumber{};
    if (base == 0 || base == 1) break;
    if (base == -1) return exponent % 2 ? -1 : 1;
  }
  return result;
}

// To a multiple of 10^digits, the even one of two equally near.
int64_t round_whole(int64_t value, int64_t digits) {
  int64_t unit = 1;
  for (int64_t i = 0; i < digits; ++i) unit *= 10;
  int64_t rest = value % unit, units = value / unit, rounded = 0;
  if (rest < 0) rest += unit, --units;
  units += rest > unit - rest || (rest == unit - rest && units % 2 != 0);
  if (__builtin_mul_overflow(units, unit, &rounded)) throw NoNumber{};
  return rounded;
}

// Decimal digits of all scripts as those of ASCII, as int() and float() read them.
std::string with_ascii_digits(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    Char c = read_at(text, i);
    auto zero = std::ranges::upper_bound(kDigitZeros, c.code);
    auto digit = zero == kDigitZeros.begin() ? 10 : c.code - *--zero;
    digit < 10 ? out += static_cast<char>('0' + digit) : out += text.substr(i, c.bytes);
    i += c.bytes;
  }
  return out;
}

// Underscores between digits are left out; none where they stand elsewhere.
std::optional<std::string> without_underscores(const std::string& text) {
  std::string out;
  auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return {};
    }
  }
  return out;
}

}  // namespace

double to_double(const Number& n) {
  return whole(n) ? static_cast<double>(*whole(n)) : std::get<double>(n);
}

bool truthy(const Number& n) { return whole(n) ? *whole(n) != 0 : std::get<double>(n) != 0; }

std::string to_string(const Number& n) {
  if (whole(n)) return std::to_string(*whole(n));
  double value = std::get<double>(n);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Shortest digits; fixed for exponents -4 .. 15, as repr().
  char buffer[64];
  auto shortest =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, shortest.ptr);
  int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

Number add(const Number& a, const Number& b) {
  return combine(
      a, b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_add_overflow(x, y, r); },
      [](double x, double y) { return x + y; });
}

Number subtract(const Number& a, const Number& b) {
  return combine(
      a, b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_sub_overflow(x, y, r); },
      [](double x, double y) { return x - y; });
}

Number multiply(const Number& a, const Number& b) {
  return combine(
      a, b, [](int64_t x, int64_t y, int64_t* r) { return __builtin_mul_overflow(x, y, r); },
      [](double x, double y) { return x * y; });
}

Number divide(const Number& a, const Number& b) {
  if (to_double(b) == 0) throw NoNumber{};
  return to_double(a) / to_double(b);
}

Number modulo(const Number& a, const Number& b) {
  if (!truthy(b)) throw NoNumber{};
  if (whole(a) && whole(b)) {
    if (*whole(b) == -1) return int64_t{0};
    int64_t rest = *whole(a) % *whole(b);
    return rest != 0 && (rest < 0) != (*whole(b) < 0) ? rest + *whole(b) : rest;
  }
  double y = to_double(b), rest = std::fmod(to_double(a), y);
  if (rest == 0) return std::copysign(0.0, y);
  return (rest < 0) != (y < 0) ? rest + y : rest;
}

Number power(const Number& a, const Number& b) {
  if (whole(a) && whole(b) && *whole(b) >= 0) return whole_power(*whole(a), *whole(b));
  double x = to_double(a), y = to_double(b);
  if (x == 0 && y < 0) throw NoNumber{};
  double result = std::pow(x, y);
  bool overflow = std::isinf(result) && std::isfinite(x) && std::isfinite(y);
  bool complex = std::isnan(result) && !std::isnan(x) && !std::isnan(y);
  if (overflow || complex) throw NoNumber{};
  return result;
}

Number negate(const Number& a) {
  if (!whole(a)) return -std::get<double>(a);
  return subtract(int64_t{0}, a);
}

Number round_to(const Number& a, const Number& by) {
  int64_t digits = std::get<int64_t>(truncate(by));
  if (whole(a) && digits < -18) return int64_t{0};
  if (whole(a)) return digits >= 0 ? *whole(a) : round_whole(*whole(a), -digits);
  double value = std::get<double>(a);
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return 0 * value;
  if (digits < 0) {
    double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Number truncate(const Number& a) {
  if (whole(a)) return a;
  double value = std::trunc(std::get<double>(a));
  if (!(std::abs(value) < 9.2e18)) throw NoNumber{};
  return static_cast<int64_t>(value);
}

int compare(const Number& a, const Number& b) {
  if (whole(a) && whole(b)) return *whole(a) < *whole(b) ? -1 : *whole(a) > *whole(b);
  double x = to_double(a), y = to_double(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y;
}

std::optional<double> parse_float(std::string_view text) {
  std::optional<std::string> digits = without_underscores(with_ascii_digits(strip(text)));
  if (!digits) return {};
  std::string_view rest = *digits;
  bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+' || rest.starts_with("nan(")) return {};
  double value = 0;
  auto read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (read.ptr != rest.data() + rest.size()) return {};
  if (read.ec == std::errc::result_out_of_range)
    value = std::strtod(digits->c_str(), nullptr);
  else if (read.ec != std::errc())
    return {};
  return negative ? -std::abs(value) : value;
}

std::optional<int64_t> parse_int(std::string_view text) {
  std::optional<std::string> digits = without_underscores(with_ascii_digits(strip(text)));
  if (!digits) return {};
  std::string_view rest = *digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.starts_with('-') && digits->starts_with('+')) return {};
  int64_t value = 0;
  auto read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (read.ec != std::errc() || read.ptr != rest.data() + rest.size()) return {};
  return value;
}

std::string with_separators(double value) {
  if (!std::isfinite(value)) return {};
  std::string digits;
  if (value == std::trunc(value)) {
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.0f", value);
    digits = buffer == std::string_view("-0") ? "0" : buffer;
  } else {
    digits = to_string(value);
  }
  size_t begin = digits.starts_with('-') ? 1 : 0;
  size_t end = std::min(digits.find_first_not_of("0123456789", begin), digits.size());
  for (size_t at = end; at > begin + 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace neox::wiki
