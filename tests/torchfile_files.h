// PyTorch files for tests: those that PyTorch wrote (tests/oracle/torchfile.py --golden), and small
// ones with pickles made by hand.
#pragma once
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data_files.h"
#include "hex.h"
#include "torchfile/bytes.h"
#include "torchfile/torch_file.h"
#include "torchfile/zip_reader.h"
#include "torchfile/zip_writer.h"

namespace neox::torchfile {

struct Golden {
  std::string name, bytes;
  nlohmann::json value;
};

inline const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = [] {
    std::vector<Golden> files;
    std::ifstream in(NEOX_SOURCE_DIR "/tests/golden/torchfile.json");
    for (const auto& file : nlohmann::json::parse(in))
      files.push_back({file["name"], from_hex(file["hex"]), file["value"]});
    return files;
  }();
  return all;
}

inline const Golden& golden(const std::string& name) {
  for (const Golden& file : goldens())
    if (file.name == name) return file;
  fail(Exit::kInternal, "no golden file ", name);
}

// A literal with zero bytes in it.
template <size_t N>
std::string raw(const char (&text)[N]) {
  return {text, N - 1};
}

using RecordList = std::vector<std::pair<std::string, std::string>>;

inline std::string zip_of(const RecordList& records) {
  testing::Directory dir;
  ZipWriter zip(dir / "made.pt");
  for (const auto& [name, content] : records) zip.add(name, content);
  zip.publish();
  return read_file(dir / "made.pt");
}

// A file with that pickle, of protocol 2 without its first two bytes and its STOP.
inline std::string file_of(const std::string& pickle, RecordList more = {}) {
  more.insert(more.begin(), {"a/data.pkl", "\x80\x02" + pickle + "."});
  return zip_of(more);
}

// Of bytes that outlive it.
inline TorchFile read(const std::string& bytes) { return {bytes_of(bytes), "made.pt"}; }
TorchFile read(std::string&&) = delete;

// The records whose bytes are not those of their checksum.
inline std::vector<std::string> damaged_records(std::span<const std::byte> file) {
  std::vector<std::string> damaged;
  for (const auto& [name, record] : read_zip(file, "made.pt"))
    if (crc32_z(0, reinterpret_cast<const Bytef*>(record.bytes.data()), record.bytes.size()) !=
        record.crc32)
      damaged.push_back(name);
  return damaged;
}

// What reading says.
inline std::string error_of(const std::string& bytes) {
  try {
    read(bytes);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::kIo);
    return error.what();
  }
}

inline std::string ints(std::initializer_list<int> values) {
  std::string pickle = "(";
  for (int value : values) pickle += "K" + std::string(1, static_cast<char>(value));
  return pickle + "t";
}

inline std::string text_of(const std::string& text) {
  return "X" + std::string(1, static_cast<char>(text.size())) + std::string(3, '\0') + text;
}

struct TensorPickle {
  std::string sizes, strides;
  int offset = 0, elements = 6;
  std::string location = "cpu", storage = "FloatStorage";
};

// A tensor in data/0.
inline std::string pickle_of(const TensorPickle& t) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text_of("storage") + "ctorch\n" + t.storage +
         "\n" + text_of("0") + text_of(t.location) + "K" + static_cast<char>(t.elements) + "tQK" +
         static_cast<char>(t.offset) + t.sizes + t.strides + "\x89Nt" + "R";
}

}  // namespace neox::torchfile
