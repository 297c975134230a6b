#include "metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "metrics/crc32c.h"
#include "metrics/wire.h"

namespace neox {
namespace {

// Field numbers of event.proto, summary.proto, tensor.proto and tensor_shape.proto.
namespace event_field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_field {
constexpr int kStatus = 1;
constexpr int kStart = 1;  // a value of status
}  // namespace session_field
namespace summary_field {
constexpr int kValue = 1;
}
namespace value_field {
constexpr int kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}
namespace metadata_field {
constexpr int kPluginData = 1, kDataClass = 4;
constexpr int kDataClassTensor = 2;  // a value of data_class
constexpr int kPluginName = 1;       // in plugin_data
}  // namespace metadata_field
namespace tensor_field {
constexpr int kDtype = 1, kShape = 2, kContent = 4, kFloat = 5, kDouble = 6, kInt = 7, kString = 8,
              kInt64 = 10;
constexpr int kDim = 2, kDimSize = 1;  // in shape, and in a dim of it
}  // namespace tensor_field
constexpr int kDtFloat = 1, kDtDouble = 2, kDtInt32 = 3, kDtString = 7, kDtInt64 = 9;

constexpr size_t kLengthBytes = 8, kCrcBytes = 4;

std::string encode_text(const std::string& tag, const std::string& text) {
  using wire::Message;
  Message dim, shape, tensor, plugin, metadata, value;
  shape.bytes(tensor_field::kDim, dim.varint(tensor_field::kDimSize, 1).text());
  tensor.varint(tensor_field::kDtype, kDtString)
      .bytes(tensor_field::kShape, shape.text())
      .bytes(tensor_field::kString, text);
  metadata
      .bytes(metadata_field::kPluginData, plugin.bytes(metadata_field::kPluginName, "text").text())
      .varint(metadata_field::kDataClass, metadata_field::kDataClassTensor);
  return value.bytes(value_field::kTag, tag)
      .bytes(value_field::kTensor, tensor.text())
      .bytes(value_field::kMetadata, metadata.text())
      .text();
}

std::string encode_scalar(const std::string& tag, double scalar) {
  return wire::Message()
      .bytes(value_field::kTag, tag)
      .fixed32(value_field::kSimpleValue, static_cast<float>(scalar))
      .text();
}

// A tensor as far as it can be one number or one text.
struct OneElement {
  uint64_t dtype = 0;
  uint64_t size = 1;         // product of the dims, cut off at 2
  std::string_view content;  // raw little-endian elements
  std::optional<double> number;
  std::optional<std::string> text;
};

uint64_t read_shape(std::string_view shape) {
  wire::Field dim, size;
  uint64_t product = 1;
  for (wire::Reader dims(shape); dims.next(dim);) {
    if (dim.number != tensor_field::kDim || dim.type != wire::Type::kBytes) continue;
    for (wire::Reader sizes(dim.bytes); sizes.next(size);)
      if (size.number == tensor_field::kDimSize && size.type == wire::Type::kVarint)
        product = std::min<uint64_t>(2, product * std::min<uint64_t>(2, size.bits));
  }
  return product;
}

// A repeated number comes packed (as bytes) or, from old writers, as a field for each.
double read_number(const wire::Field& field) {
  bool packed = field.type == wire::Type::kBytes;
  uint64_t bits = field.bits;
  if (packed && (field.number == tensor_field::kFloat || field.number == tensor_field::kDouble)) {
    bits = wire::little_endian(field.bytes.substr(0, 8));
  } else if (packed) {
    wire::Field first;
    std::string with_key = "\x08" + std::string(field.bytes.substr(0, 10));
    bits = wire::Reader(with_key).next(first) ? first.bits : 0;
  }
  wire::Field value{.number = 0, .type = wire::Type::kVarint, .bits = bits, .bytes = {}};
  if (field.number == tensor_field::kFloat) return value.as_float();
  if (field.number == tensor_field::kDouble) return value.as_double();
  if (field.number == tensor_field::kInt) return static_cast<int32_t>(bits);
  return static_cast<double>(static_cast<int64_t>(bits));
}

void read_content(OneElement& tensor) {
  wire::Field value;
  value.bits = wire::little_endian(tensor.content.substr(0, 8));
  size_t size = tensor.content.size();
  if (tensor.dtype == kDtFloat && size == 4) tensor.number = value.as_float();
  if (tensor.dtype == kDtDouble && size == 8) tensor.number = value.as_double();
  if (tensor.dtype == kDtInt32 && size == 4) tensor.number = static_cast<int32_t>(value.bits);
  if (tensor.dtype == kDtInt64 && size == 8)
    tensor.number = static_cast<double>(static_cast<int64_t>(value.bits));
}

OneElement read_tensor(std::string_view message) {
  OneElement tensor;
  wire::Field field;
  for (wire::Reader fields(message); fields.next(field);) {
    switch (field.number) {
      case tensor_field::kDtype:
        tensor.dtype = field.bits;
        break;
      case tensor_field::kShape:
        tensor.size = read_shape(field.bytes);
        break;
      case tensor_field::kContent:
        tensor.content = field.bytes;
        break;
      case tensor_field::kFloat:
      case tensor_field::kDouble:
      case tensor_field::kInt:
      case tensor_field::kInt64:
        if (!tensor.number) tensor.number = read_number(field);
        break;
      case tensor_field::kString:
        if (!tensor.text) tensor.text = std::string(field.bytes);
        break;
    }
  }
  if (!tensor.number) read_content(tensor);
  return tensor;
}

bool is_numeric(uint64_t dtype) {
  constexpr std::array<uint64_t, 4> kNumeric = {kDtFloat, kDtDouble, kDtInt32, kDtInt64};
  return std::find(kNumeric.begin(), kNumeric.end(), dtype) != kNumeric.end();
}

void read_value(std::string_view message, Event& event) {
  std::string tag;
  std::optional<double> scalar;
  std::optional<std::string> text;
  wire::Field field;
  for (wire::Reader fields(message); fields.next(field);) {
    if (field.number == value_field::kTag) tag = field.bytes;
    if (field.number == value_field::kSimpleValue && field.type == wire::Type::kFixed32)
      scalar = field.as_float();
    if (field.number == value_field::kTensor) {
      OneElement tensor = read_tensor(field.bytes);
      if (tensor.size == 1 && is_numeric(tensor.dtype)) scalar = tensor.number;
      if (tensor.size == 1 && tensor.dtype == kDtString) text = std::move(tensor.text);
    }
  }
  if (scalar) event.scalars.emplace_back(tag, *scalar);
  if (text) event.texts.emplace_back(tag, std::move(*text));
}

bool is_session_start(std::string_view session) {
  wire::Field field;
  for (wire::Reader fields(session); fields.next(field);)
    if (field.number == session_field::kStatus && field.bits == session_field::kStart) return true;
  return false;
}

void read_summary(std::string_view summary, Event& event) {
  wire::Field field;
  for (wire::Reader values(summary); values.next(field);)
    if (field.number == summary_field::kValue && field.type == wire::Type::kBytes)
      read_value(field.bytes, event);
}

bool says_something(const Event& event) {
  return !event.scalars.empty() || !event.texts.empty() || !event.file_version.empty() ||
         event.session_start;
}

// The seconds in "events.out.tfevents.1700000000.host...", or 0.
int64_t time_in_name(const std::string& name) {
  static const std::string kMark = ".tfevents.";
  size_t at = name.find(kMark);
  if (at == std::string::npos) return 0;
  constexpr int64_t kTenDigits = 9'999'999'998;  // with more the order of names would break
  return std::min<int64_t>(kTenDigits, std::atoll(name.c_str() + at + kMark.size()));
}

fs::path new_event_path(const fs::path& dir) {
  make_directories(dir);
  int64_t seconds = std::time(nullptr);
  std::error_code ignored;  // a directory that can be written but not read is taken for empty
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, ignored))
    seconds = std::max(seconds, time_in_name(entry.path().filename().string()) + 1);
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0 || !*host) std::snprintf(host, sizeof host, "host");
  return dir / concat("events.out.tfevents.", printed("%010" PRId64, seconds), ".", host, ".",
                      ::getpid(), ".0");
}

}  // namespace

std::string encode_event(const Event& event) {
  wire::Message message;
  message.fixed64(event_field::kWallTime, event.time).varint(event_field::kStep, event.step);
  // One of these makes an event's content; a caller gives one kind.
  if (!event.file_version.empty()) message.bytes(event_field::kFileVersion, event.file_version);
  if (event.session_start)
    message.bytes(event_field::kSessionLog,
                  wire::Message().varint(session_field::kStatus, session_field::kStart).text());
  if (event.scalars.empty() && event.texts.empty()) return message.text();
  wire::Message summary;
  for (const auto& [tag, value] : event.scalars)
    summary.bytes(summary_field::kValue, encode_scalar(tag, value));
  for (const auto& [tag, text] : event.texts)
    summary.bytes(summary_field::kValue, encode_text(tag, text));
  return message.bytes(event_field::kSummary, summary.text()).text();
}

std::optional<Event> decode_event(std::string_view message) {
  Event event;
  wire::Field field;
  wire::Reader fields(message);
  while (fields.next(field)) {
    bool is_bytes = field.type == wire::Type::kBytes;
    if (field.number == event_field::kWallTime && field.type == wire::Type::kFixed64)
      event.time = field.as_double();
    if (field.number == event_field::kStep && field.type == wire::Type::kVarint)
      event.step = static_cast<int64_t>(field.bits);
    if (field.number == event_field::kFileVersion && is_bytes) event.file_version = field.bytes;
    if (field.number == event_field::kSummary && is_bytes) read_summary(field.bytes, event);
    if (field.number == event_field::kSessionLog && is_bytes)
      event.session_start = is_session_start(field.bytes);
  }
  if (fields.damaged()) return std::nullopt;
  return event;
}

std::string encode_record(std::string_view payload) {
  std::string record;
  wire::append_little_endian(record, payload.size(), kLengthBytes);
  wire::append_little_endian(record, masked_crc32c(record), kCrcBytes);
  record += payload;
  wire::append_little_endian(record, masked_crc32c(payload), kCrcBytes);
  return record;
}

EventFile read_event_file(std::string_view bytes) {
  EventFile file;
  auto damaged = [&](const char* what, size_t at) {
    if (file.damage.empty()) file.damage = concat(what, " at byte ", at);
  };
  for (size_t at = 0; bytes.size() - at >= kLengthBytes + kCrcBytes;) {
    std::string_view head = bytes.substr(at, kLengthBytes);
    if (wire::little_endian(bytes.substr(at + kLengthBytes, kCrcBytes)) != masked_crc32c(head)) {
      damaged("no valid record", at);
      break;
    }
    uint64_t length = wire::little_endian(head);
    size_t payload_at = at + kLengthBytes + kCrcBytes, rest = bytes.size() - payload_at;
    if (rest < kCrcBytes || length > rest - kCrcBytes) break;
    std::string_view payload = bytes.substr(payload_at, length);
    std::string_view crc = bytes.substr(payload_at + length, kCrcBytes);
    at = payload_at + length + kCrcBytes;
    std::optional<Event> event;
    if (wire::little_endian(crc) == masked_crc32c(payload)) event = decode_event(payload);
    if (!event) damaged("a damaged record", payload_at);
    if (event && says_something(*event)) file.events.push_back(std::move(*event));
  }
  return file;
}

EventFileWriter::EventFileWriter(const fs::path& dir)
    : file_(new_event_path(dir), AppendFile::Open::kNew) {
  write({.time = static_cast<double>(std::time(nullptr)), .file_version = "brain.Event:2"});
}

void EventFileWriter::write(const Event& event) {
  file_.append(encode_record(encode_event(event)));
}

}  // namespace neox
