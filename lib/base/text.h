// Numbers and names for people: "1.25 GB", "3 min 20 s", the nearest valid key to a misspelled one.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

// Decimal units, three significant digits: 1'250'000'000 is "1.25 GB".
std::string human_bytes(double bytes);

// The same without a unit: 70'426'624 is "70.4 M".
std::string human_count(double count);

// "45 s", "3 min 20 s", "2 h 5 min", "4 d 3 h".
std::string human_duration(double seconds);

// 2097152 is "2,097,152".
std::string with_commas(int64_t n);

// "1 rank", "3 ranks", "2 micro-batches".
std::string counted(int64_t n, std::string_view noun);

// As printf writes it: printed("%.2f", 1.5) is "1.50".
[[gnu::format(printf, 1, 2)]] std::string printed(const char* pattern, ...);

// A line for each row, its cells in columns that are two spaces apart. Rows may differ in length.
enum class Align { kLeft, kRight };
std::vector<std::string> in_columns(std::span<const std::vector<std::string>> rows, Align align);

// Its letters A to Z as a to z, whatever the locale.
std::string lower_case(std::string_view text);

// Equal but for that.
bool equal_words(std::string_view a, std::string_view b);

// Two digits for each byte: "n1" is "6e31".
std::string hexadecimal(std::string_view bytes);

// The number that all of the text is, as std::from_chars reads it, or nothing. T: int, int64_t,
// uint64_t, double.
template <class T>
std::optional<T> number_of(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string join(std::span<const std::string> parts, std::string_view separator);

// Each occurrence from left to right, or the first so many; none of an empty `what`.
std::string replace_all(std::string_view text, std::string_view what, std::string_view by,
                        size_t times = SIZE_MAX);

// The candidate with the smallest edit distance to `word`, or "" where none is near enough to be
// meant or the word is longer than 256 characters.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean NEAR?", or `otherwise` where nothing is near.
std::string did_you_mean(const std::string& near, std::string_view otherwise = "");

}  // namespace neox
