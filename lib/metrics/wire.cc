#include "metrics/wire.h"

#include <bit>

namespace neox::wire {
namespace {

void append_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

}  // namespace

void append_little_endian(std::string& to, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) to += static_cast<char>(value >> (8 * i));
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void Message::key(int field, Type type) {
  append_varint(text_, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

Message& Message::varint(int field, int64_t value) {
  key(field, Type::kVarint);
  append_varint(text_, static_cast<uint64_t>(value));
  return *this;
}

Message& Message::fixed64(int field, double value) {
  key(field, Type::kFixed64);
  append_little_endian(text_, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

Message& Message::fixed32(int field, float value) {
  key(field, Type::kFixed32);
  append_little_endian(text_, std::bit_cast<uint32_t>(value), 4);
  return *this;
}

Message& Message::bytes(int field, std::string_view value) {
  key(field, Type::kBytes);
  append_varint(text_, value.size());
  text_ += value;
  return *this;
}

double Field::as_double() const { return std::bit_cast<double>(bits); }
float Field::as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

bool Reader::next(Field& field) {
  if (damaged_ || rest_.empty()) return false;
  damaged_ = !take(field);
  return !damaged_;
}

bool Reader::take(Field& field) {
  uint64_t key = 0;
  if (!take_varint(key)) return false;
  field = {.number = key >> 3, .type = static_cast<Type>(key & 7), .bits = 0, .bytes = {}};
  switch (field.type) {
    case Type::kVarint:
      return take_varint(field.bits);
    case Type::kFixed64:
      return take_fixed(field.bits, 8);
    case Type::kFixed32:
      return take_fixed(field.bits, 4);
    case Type::kBytes:
      if (!take_varint(field.bits) || field.bits > rest_.size()) return false;
      field.bytes = rest_.substr(0, field.bits);
      rest_.remove_prefix(field.bits);
      return true;
  }
  return false;  // groups, and types that do not exist
}

bool Reader::take_varint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool Reader::take_fixed(uint64_t& bits, size_t size) {
  if (rest_.size() < size) return false;
  bits = little_endian(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return true;
}

}  // namespace neox::wire
