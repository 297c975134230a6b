// Numbers as Python computes, reads and prints them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace neox::wiki {

using Number = std::variant<int64_t, double>;

// Thrown by operations without a result: division by zero, overflow.
struct NoNumber {};

double to_double(const Number& n);
bool truthy(const Number& n);
std::string to_string(const Number& n);

Number add(const Number& a, const Number& b);
Number subtract(const Number& a, const Number& b);
Number multiply(const Number& a, const Number& b);
Number divide(const Number& a, const Number& b);  // a / b
Number modulo(const Number& a, const Number& b);  // a % b
Number power(const Number& a, const Number& b);   // a ** b
Number negate(const Number& a);
Number round_to(const Number& a, const Number& digits);  // round(a, int(digits))
Number truncate(const Number& a);                        // int(a)
int compare(const Number& a, const Number& b);           // -1 0 1; 2 where one is not a number

// float(text); none where Python raises an error.
std::optional<double> parse_float(std::string_view text);
// int(text); none also beyond 64 bits.
std::optional<int64_t> parse_int(std::string_view text);
// "1,234,567.5": format(value, ","); of what is no number or infinite, nothing.
std::string with_separators(double value);

}  // namespace neox::wiki
