#include "tokenizer/spm_model.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace neox {
namespace {

// One message of the wire format of Protocol Buffers: field by field.
class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : left_(bytes), name_(name) {}

  // The next field; false at the end.
  bool next() {
    if (left_.empty()) return false;
    uint64_t tag = varint();
    field = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0:
        number = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        std::memcpy(&bits_, take(4).data(), 4);
        break;
      default:
        bad();
    }
    return true;
  }
  bool flag() const { return number != 0; }
  float real() const { return std::bit_cast<float>(bits_); }
  Message message() const { return {bytes, name_}; }

  int field = 0;
  uint64_t number = 0;     // of a varint
  std::string_view bytes;  // of a string or message

 private:
  [[noreturn]] void bad() const {
    fail(Exit::kIo, name_, " is no model of SentencePiece (tokenizer.model): it is cut short, or ",
         "something else");
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    bad();
  }
  std::string_view take(uint64_t n) {
    if (n > left_.size()) bad();
    std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }

  std::string_view left_;
  const std::string& name_;
  uint32_t bits_ = 0;
};

SpmPiece read_piece(Message m) {
  SpmPiece piece;
  while (m.next()) {
    if (m.field == 1) piece.text = m.bytes;
    if (m.field == 2) piece.score = m.real();
    if (m.field == 3) piece.type = static_cast<int64_t>(m.number);
  }
  return piece;
}

void read_trainer(Message m, SpmModel& model) {
  while (m.next()) {
    if (m.field == 3) model.kind = static_cast<int64_t>(m.number);
    if (m.field == 24)
      check_usage(!m.flag(), model.name,
                  ": treat_whitespace_as_suffix is not supported; supported are models that write "
                  "a space in front of a word");
    if (m.field == 35) model.byte_fallback = m.flag();
    if (m.field == 44) model.unknown_text = m.bytes;
    if (m.field == 46) model.begin_of_text = m.bytes;
    if (m.field == 47) model.end_of_text = m.bytes;
  }
}

void read_normalizer(Message m, SpmModel& model) {
  while (m.next()) {
    if (m.field == 2) model.charsmap = m.bytes;
    if (m.field == 3) model.dummy_prefix = m.flag();
    if (m.field == 4) model.remove_extra_spaces = m.flag();
    if (m.field == 5) model.escape_spaces = m.flag();
  }
}

}  // namespace

bool holds_ranks(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  size_t space = line.find(' ');
  if (space == 0 || space == line.npos || space + 1 == line.size()) return false;
  auto is_base64 = [](char c) {
    return std::isalnum(static_cast<uint8_t>(c)) || c == '+' || c == '/' || c == '=';
  };
  auto is_digit = [](char c) { return '0' <= c && c <= '9'; };
  return std::ranges::all_of(line.substr(0, space), is_base64) &&
         std::ranges::all_of(line.substr(space + 1), is_digit);
}

int32_t SpmModel::control_piece(std::string_view text) const {
  auto found = std::ranges::find_if(pieces, [&](const SpmPiece& piece) {
    return piece.type == SpmPiece::kControl && piece.text == text;
  });
  return found == pieces.end() ? -1 : static_cast<int32_t>(found - pieces.begin());
}

SpmModel read_spm_model(const std::filesystem::path& path) {
  SpmModel model{.name = path.string()};
  std::string text = read_file(path);
  check_io(
      !holds_ranks(text), model.name,
      " holds ranks of tiktoken, as LLaMA 3's tokenizer.model does, and is no model of "
      "SentencePiece; take it with tokenizer_type: TiktokenTokenizer, or the tokenizer.json of "
      "the model with HFTokenizer");
  for (Message m(text, model.name); m.next();) {
    if (m.field == 1) model.pieces.push_back(read_piece(m.message()));
    if (m.field == 2) read_trainer(m.message(), model);
    if (m.field == 3) read_normalizer(m.message(), model);
  }
  check_io(!model.pieces.empty(), model.name,
           " is no model of SentencePiece (tokenizer.model): it has no pieces");
  check_usage(model.kind == SpmModel::kUnigram || model.kind == SpmModel::kBpe, model.name,
              " is a model of SentencePiece of kind ", model.kind == 3 ? "word" : "char",
              ", which is not supported; supported are bpe and unigram");
  return model;
}

}  // namespace neox
