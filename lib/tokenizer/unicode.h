// UTF-8, the classes of code points that tokenizers ask for, and the normalization forms, all as
// Hugging Face's `tokenizers` sees them (unicode_tables.h). Pure functions; any thread may call
// them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace neox::unicode {

struct CodePoint {
  char32_t value;
  size_t bytes;
};

// The code point that starts at text[at]; text must be valid UTF-8 from there on.
inline CodePoint read(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0xF) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu),
          4};
}

// The one that ends at `end`, which is not 0.
CodePoint read_before(std::string_view text, size_t end);

void append(std::string& text, char32_t code);

// The text itself where it is valid UTF-8; otherwise a copy in `storage` in which U+FFFD stands for
// each maximal invalid part (Unicode 15, section 3.9, table 3-8), as in Python's errors="replace"
// and Rust's from_utf8_lossy.
std::string_view repair(std::string_view text, std::string& storage);

enum class Class : uint8_t { kOther, kLetter, kNumber, kSpace };

// One byte of properties for each of the 0x110000 code points.
class Properties {
 public:
  static const Properties& get();
  Class category(char32_t code) const { return static_cast<Class>(bits_[code] & 3); }
  // What the pre-tokenizer Digits takes for a number: by a newer Unicode than category().
  bool numeric(char32_t code) const {
    return category(code) == Class::kNumber || (bits_[code] & kNewerNumber);
  }
  // Letters but the small ones, and marks; letters but capitals, and marks.
  bool upper(char32_t code) const { return bits_[code] & kUpper; }
  bool lower(char32_t code) const { return bits_[code] & kLower; }
  bool word_character(char32_t code) const { return bits_[code] & kWord; }
  // What the pre-tokenizer Punctuation cuts out.
  bool punctuation(char32_t code) const;
  // Whether its NFKD is not its NFD.
  bool compatible(char32_t code) const { return bits_[code] & kCompatible; }
  // Whether NFC may move, change or attach it. A text without such code points is NFC.
  bool unstable(char32_t code) const { return bits_[code] & kUnstable; }
  // Whether a byte starts the UTF-8 of any of these.
  bool lead_unstable(uint8_t lead) const { return lead_unstable_[lead]; }

 private:
  static constexpr uint8_t kWord = 4, kUnstable = 8, kNewerNumber = 16, kUpper = 32, kLower = 64,
                           kCompatible = 128;
  Properties();
  std::string bits_;
  bool lead_unstable_[256] = {};
};

bool is_space(char32_t code);
// Behind the white space that begins at `at`, and where that which ends there begins.
size_t skip_spaces(std::string_view text, size_t at);
size_t skip_spaces_back(std::string_view text, size_t at);

// What `tokenizers` makes of it, as UTF-8.
void append_lowercase(std::string& text, char32_t code);
bool is_accent(char32_t code);      // what StripAccents leaves out
bool is_nonspacing(char32_t code);  // the marks that BertNormalizer leaves out
bool is_control(char32_t code);     // what its clean_text leaves out
bool is_printable(char32_t code);  // a blank, a letter, mark, number, sign: neither C nor another Z
// The number of its script as UnicodeScripts tells them apart, or -1 of what goes with all of them.
int script_of(char32_t code);
// The bytes of the first grapheme of a text (UAX #29), where it has fewer than 6, or else at least
// as many: sequences of more than that are not looked at as a whole.
size_t grapheme_bytes(std::string_view text);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// The text itself where it is in the form already, otherwise its form in `storage`. text must be
// valid UTF-8.
std::string_view in_form(std::string_view text, Form form, std::string& storage);

}  // namespace neox::unicode
