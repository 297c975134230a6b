// Just enough of protobuf's wire format to write and read TensorBoard events without the library
// (https://protobuf.dev/programming-guides/encoding). The reader takes any bytes: it never reads
// beyond them and never allocates.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace neox::wire {

enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Appends fields to a message.
class Message {
 public:
  Message& varint(int field, int64_t value);
  Message& fixed64(int field, double value);
  Message& fixed32(int field, float value);
  Message& bytes(int field, std::string_view value);
  const std::string& text() const { return text_; }

 private:
  void key(int field, Type type);
  std::string text_;
};

// One field: `bits` holds a varint, or the bits of a fixed value; `bytes` what has a length.
struct Field {
  uint64_t number = 0;
  Type type = Type::kVarint;
  uint64_t bits = 0;
  std::string_view bytes;

  double as_double() const;  // of kFixed64
  float as_float() const;    // of kFixed32
};

// Takes the fields of a message one by one.
class Reader {
 public:
  explicit Reader(std::string_view message) : rest_(message) {}
  // False at the end, and for good at the first thing that is not a field.
  bool next(Field& field);
  bool damaged() const { return damaged_; }

 private:
  bool take(Field& field);
  bool take_varint(uint64_t& value);
  bool take_fixed(uint64_t& bits, size_t size);

  std::string_view rest_;
  bool damaged_ = false;
};

void append_little_endian(std::string& to, uint64_t value, int num_bytes);
uint64_t little_endian(std::string_view bytes);

}  // namespace neox::wire
