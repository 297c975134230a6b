#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/raw_file.h"
#include "convert/json.h"
#include "convert/safetensors.h"
#include "convert/safetensors_types.h"

namespace neox {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Name {
  const char* name;
  c10::ScalarType dtype;
};

using c10::ScalarType;
constexpr Name kNames[] = {
    {"F64", ScalarType::Double},
    {"F32", ScalarType::Float},
    {"F16", ScalarType::Half},
    {"BF16", ScalarType::BFloat16},
    {"I64", ScalarType::Long},
    {"I32", ScalarType::Int},
    {"I16", ScalarType::Short},
    {"I8", ScalarType::Char},
    {"U64", ScalarType::UInt64},
    {"U32", ScalarType::UInt32},
    {"U16", ScalarType::UInt16},
    {"U8", ScalarType::Byte},
    {"BOOL", ScalarType::Bool},
    {"C64", ScalarType::ComplexFloat},
    {"F8_E4M3", ScalarType::Float8_e4m3fn},
    {"F8_E5M2", ScalarType::Float8_e5m2},
};

}  // namespace

ScalarType safetensors_type(const std::string& name, const std::string& where) {
  for (const Name& n : kNames)
    if (n.name == name) return n.dtype;
  fail(Exit::kIo, where, " has the type ", name, ", which is not known");
}

const char* safetensors_name(ScalarType dtype) {
  for (const Name& n : kNames)
    if (n.dtype == dtype) return n.name;
  fail(Exit::kInternal, "safetensors has no type ", c10::toString(dtype));
}

struct SafetensorsWriter::File {
  std::string header;  // with its length before it
  int64_t bytes = 0;   // of the tensors
  size_t missing = 0;  // tensors that are still to be written
  std::unique_ptr<RawFile> file = nullptr;
};

SafetensorsWriter::SafetensorsWriter(const fs::path& dir, const std::vector<TensorInfo>& tensors,
                                     int64_t max_bytes)
    : dir_(dir) {
  std::vector<std::vector<Place*>> of;
  int64_t bytes = 0;
  for (const TensorInfo& info : tensors) {
    auto [at, fresh] = places_.try_emplace(info.name, Place{.info = info});
    check(fresh, "the tensor ", info.name, " is to be written twice");
    if (of.empty() || bytes + info.bytes() > max_bytes) {
      if (of.empty() || !of.back().empty()) of.emplace_back();
      bytes = 0;
    }
    bytes += info.bytes();
    of.back().push_back(&at->second);
  }
  if (of.empty()) of.emplace_back();
  for (size_t i = 0; i < of.size(); ++i) files_.push_back(std::make_unique<File>());
  for (size_t i = 0; i < of.size(); ++i) lay_out(i, std::move(of[i]));
}

SafetensorsWriter::~SafetensorsWriter() = default;

// Wide types first, so that every tensor is aligned to its elements.
void SafetensorsWriter::lay_out(size_t number, std::vector<Place*> places) {
  File& file = *files_[number];
  std::ranges::stable_sort(places, std::greater(),
                           [](const Place* p) { return c10::elementSize(p->info.dtype); });
  OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
  for (Place* place : places) {
    place->file = number, place->offset = file.bytes;
    file.bytes += place->info.bytes();
    OrderedJson entry = {{"dtype", safetensors_name(place->info.dtype)},
                         {"shape", place->info.shape}};
    entry["data_offsets"] = {place->offset, file.bytes};
    header[place->info.name] = std::move(entry);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  file.header.assign(reinterpret_cast<const char*>(&length), sizeof length);
  file.header += text;
  file.missing = places.size();
}

std::string SafetensorsWriter::file_name(size_t file) const {
  if (files_.size() == 1) return "model.safetensors";
  return printed("model-%05zu-of-%05zu.safetensors", file + 1, files_.size());
}

void SafetensorsWriter::write(const std::string& name, const at::Tensor& tensor) {
  auto found = places_.find(name);
  check(found != places_.end() && !found->second.written, "the tensor ", name,
        " is not to be written, or was written before");
  Place& place = found->second;
  bool fits = tensor.sizes().vec() == place.info.shape &&
              tensor.scalar_type() == place.info.dtype && tensor.is_contiguous();
  check(fits, "the tensor ", name, " is not ", to_string(place.info.shape), " of ",
        type_words(place.info.dtype));
  File& file = *files_[place.file];
  if (!file.file) {
    file.file = std::make_unique<RawFile>(dir_ / file_name(place.file), RawFile::Mode::kCreate);
    file.file->reserve(static_cast<int64_t>(file.header.size()) + file.bytes);
    file.file->write(std::as_bytes(std::span(file.header.data(), file.header.size())), 0);
  }
  file.file->write({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()},
                   static_cast<int64_t>(file.header.size()) + place.offset);
  place.written = true;
  if (--file.missing > 0) return;
  file.file->close();
  file.file.reset();
}

void SafetensorsWriter::finish() {
  for (const auto& [name, place] : places_)
    check(place.written, "the tensor ", name, " was not written");
  if (files_.size() > 1) write_index();
}

void SafetensorsWriter::write_index() const {
  int64_t bytes = 0;
  nlohmann::json map = nlohmann::json::object();
  for (const auto& [name, place] : places_) map[name] = file_name(place.file);
  for (const auto& file : files_) bytes += file->bytes;
  OrderedJson index = {{"metadata", {{"total_size", bytes}}}};
  index["weight_map"] = map;
  write_flushed(dir_ / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace neox
