#include "convert/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "checkpoint/raw_file.h"
#include "convert/json.h"
#include "convert/safetensors_types.h"

namespace neox {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeader = 100'000'000;

const fs::path& regular_file(const fs::path& path) {
  std::error_code error;
  bool exists = fs::exists(path, error);
  check_io(exists, path.string(), " does not exist");
  check_io(fs::is_regular_file(path, error), path.string(), " is not a file");
  return path;
}

// The header's text.
std::string header_of(const RawFile& file, const std::string& where) {
  auto size = static_cast<uint64_t>(file.size());
  uint64_t length = 0;
  check_io(size >= sizeof length, where, " has ", size,
           " bytes: it is truncated, or no safetensors file");
  std::string begin(std::min<uint64_t>(size, 64), '\0');
  file.read(std::as_writable_bytes(std::span(begin)), 0);
  check_is_no_pointer(begin, where);
  std::memcpy(&length, begin.data(), sizeof length);
  check_io(length <= kMostHeader, where, " says that its header has ", length, " bytes; more than ",
           kMostHeader, " are not read: is it a safetensors file?");
  check_io(length <= size - sizeof length, where, " has ", size, " bytes, but its header alone ",
           length, ": it is truncated");
  std::string text(length, '\0');
  file.read(std::as_writable_bytes(std::span(text.data(), text.size())), sizeof length);
  check_io(text.starts_with('{'), where, " has no header of a safetensors file");
  return text;
}

struct Span {
  uint64_t begin = 0, end = 0;  // from the end of the header
};

uint64_t natural(const Json& value, const std::string& where) {
  check_io(value.is_number_unsigned(), where, " has ", value.dump(),
           " where a number of 0 or more should stand");
  return value.get<uint64_t>();
}

// An entry of the header: dtype, shape, data_offsets.
std::pair<TensorInfo, Span> entry_of(const std::string& name, const Json& entry,
                                     const std::string& file) {
  std::string where = concat(file, ": tensor ", name);
  bool whole = entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
               entry.contains("shape") && entry.contains("data_offsets");
  check_io(whole && entry["dtype"].is_string() && entry["shape"].is_array() &&
               entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2,
           where, " should have dtype, shape and two data_offsets, and nothing else");
  TensorInfo info{name, safetensors_type(entry["dtype"].get<std::string>(), where), {}};
  constexpr size_t kMostDimensions = 64;
  check_io(entry["shape"].size() <= kMostDimensions, where, " has ", entry["shape"].size(),
           " dimensions");
  uint64_t bytes = c10::elementSize(info.dtype);
  for (const Json& size : entry["shape"]) {
    uint64_t n = natural(size, where);
    check_io(n < uint64_t{1} << 48 && !__builtin_mul_overflow(bytes, n, &bytes), where,
             " has the shape ", entry["shape"].dump(), ", which no file can hold");
    info.shape.push_back(static_cast<int64_t>(n));
  }
  Span span{natural(entry["data_offsets"][0], where), natural(entry["data_offsets"][1], where)};
  check_io(span.begin <= span.end && span.end - span.begin == bytes, where, " ",
           to_string(info.shape), " of ", entry["dtype"].get<std::string>(), " has ", bytes,
           " bytes, but its data_offsets are ", entry["data_offsets"].dump());
  return {info, span};
}

// Each tensor begins where the one before ends, and the last ends with the file.
void check_spans(const std::vector<std::pair<TensorInfo, Span>>& entries, uint64_t data,
                 const std::string& where) {
  uint64_t at = 0;
  std::string before = "the header";
  for (const auto& [info, span] : entries) {
    check_io(span.begin >= at, where, ": ", info.name, " begins at byte ", span.begin,
             " of the data, before the end of ", before, " at ", at, ": they overlap");
    check_io(span.begin == at, where, ": the bytes ", at, " to ", span.begin,
             " of the data, between ", before, " and ", info.name, ", belong to no tensor");
    at = span.end;
    before = info.name;
  }
  check_io(at <= data, where, " is truncated: its tensors have ", at, " bytes, but ", data,
           " are there");
  check_io(at == data, where, " has ", data - at, " bytes after its last tensor");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : path_(regular_file(path)), written_(fs::last_write_time(path)) {
  RawFile file(path, RawFile::Mode::kRead);
  std::string where = path.string(), header = header_of(file, where);
  auto data = static_cast<int64_t>(sizeof(uint64_t) + header.size());
  Json json = parse_json(header, "the header of " + where);
  std::vector<std::pair<TensorInfo, Span>> entries;
  for (const auto& [name, entry] : json.items())
    if (name != "__metadata__") entries.push_back(entry_of(name, entry, where));
  std::ranges::sort(entries, {},
                    [](const auto& e) { return std::pair(e.second.begin, e.second.end); });
  check_spans(entries, static_cast<uint64_t>(file.size() - data), where);
  for (auto& [info, span] : entries) {
    numbers_[info.name] = tensors_.size();
    tensors_.push_back(info);
    offsets_.push_back(data + static_cast<int64_t>(span.begin));
  }
}

at::Tensor SafetensorsFile::read(const std::string& name) const {
  auto found = numbers_.find(name);
  check_io(found != numbers_.end(), path_.string(), " holds no tensor ", name);
  const TensorInfo& info = tensors_[found->second];
  at::Tensor tensor = at::empty(info.shape, info.dtype);
  RawFile file(path_, RawFile::Mode::kRead);
  std::error_code error;
  check_io(fs::last_write_time(path_, error) == written_, path_.string(),
           " was written again meanwhile, and may hold another model; start again");
  file.read({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()},
            offsets_[found->second]);
  return tensor;
}

}  // namespace neox
