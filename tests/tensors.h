// Reads safetensors files (https://huggingface.co/docs/safetensors): an 8-byte little-endian
// length, that many bytes of JSON, then the data. For tests.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace neox {

struct TensorFile {
  std::map<std::string, at::Tensor> tensors;
  nlohmann::json metadata;  // text by name

  const at::Tensor& at(const std::string& name) const {
    auto found = tensors.find(name);
    check(found != tensors.end(), "the file has no tensor ", name);
    return found->second;
  }
};

inline at::ScalarType safetensors_type(const std::string& name) {
  static const std::map<std::string, at::ScalarType> types = {
      {"F64", at::kDouble},    {"F32", at::kFloat}, {"F16", at::kHalf},
      {"BF16", at::kBFloat16}, {"I64", at::kLong},  {"I32", at::kInt}};
  auto found = types.find(name);
  check(found != types.end(), "safetensors type ", name, " is not read here");
  return found->second;
}

// Throws for a file that is cut short or whose offsets do not fit.
inline TensorFile read_safetensors(const fs::path& path) {
  std::string bytes = read_file(path);
  uint64_t header = 0;
  check_io(bytes.size() >= sizeof header, path.string(), ": too short for a safetensors file");
  std::memcpy(&header, bytes.data(), sizeof header);
  check_io(header <= bytes.size() - sizeof header, path.string(), ": the header is cut short");
  auto table =
      nlohmann::json::parse(bytes.begin() + 8, bytes.begin() + 8 + static_cast<long>(header));
  char* data = bytes.data() + sizeof header + header;
  uint64_t size = bytes.size() - sizeof header - header;
  TensorFile file;
  for (const auto& [name, entry] : table.items()) {
    if (name == "__metadata__") {
      file.metadata = entry;
      continue;
    }
    auto shape = entry.at("shape").get<std::vector<int64_t>>();
    auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
    at::ScalarType type = safetensors_type(entry.at("dtype").get<std::string>());
    // A copy, because the data need not be aligned.
    check_io(offsets[0] <= offsets[1] && offsets[1] <= size, path.string(), ": ", name,
             " lies beyond the end of the file");
    at::Tensor t = at::empty(shape, type);
    check_io(t.nbytes() == offsets[1] - offsets[0], path.string(), ": ", name, " has ",
             offsets[1] - offsets[0], " bytes, its shape asks for ", t.nbytes());
    std::memcpy(t.mutable_data_ptr(), data + offsets[0], t.nbytes());
    file.tensors[name] = t;
  }
  return file;
}

}  // namespace neox
