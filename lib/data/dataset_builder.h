// Writes a dataset, <prefix>.bin and <prefix>.idx, byte for byte as the tools of GPT-NeoX and
// Megatron do (docs/data.md). One thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/indexed_dataset.h"

namespace neox {

// A file that appears under its name only when publish() is called; until then, and if it is not,
// it has another name and goes away with this object. Errors are Error (74).
class OutputFile {
 public:
  explicit OutputFile(fs::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void flush_to_disk();  // ends the writing
  void publish();

 private:
  void write_out(std::span<const std::byte> bytes);

  fs::path path_, part_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

class DatasetBuilder {
 public:
  // Creates the directory of the prefix. vocab decides the type of the tokens.
  DatasetBuilder(const std::string& prefix, int64_t vocab);

  // One document of one sequence.
  void add_document(std::span<const int32_t> tokens);
  // Flushes and names the files; nothing is left under their names if that fails, or if it is not
  // called.
  void finish();

  int64_t num_documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_tokens() const { return num_tokens_; }
  TokenType type() const { return type_; }

 private:
  void write_index();

  std::string prefix_;
  int64_t vocab_;
  TokenType type_;
  OutputFile bin_, idx_;
  std::vector<int32_t> lengths_;
  std::vector<uint16_t> narrow_;
  int64_t num_tokens_ = 0;
};

}  // namespace neox
