// The files that corpora come in: JSON lines and plain text, named one by one or by their
// directory.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

struct InputFile {
  enum class Format { kJsonLines, kText };
  std::string path;
  Format format = Format::kText;
  int64_t bytes = 0;
};

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<std::string> left_out;  // binary files of directories
  int64_t bytes = 0;
};

// The files of a list of paths; a path may be several, separated by commas. The files of a
// directory come in the order of their paths, without hidden ones, and each file once. *.jsonl,
// *.ndjson and
// *.json are JSON lines, *.txt, *.text and *.md text; others are JSON lines where the first byte
// that is not blank is '{'. With a separator all files are text. Throws Error (64, 74) for what is
// missing, compressed or binary.
enum class Separated { kNo, kYes };
InputFiles find_input_files(std::span<const std::string> paths, Separated separated);

// A part of a file: whole lines of JSON, or whole documents of text.
struct Block {
  const InputFile* file = nullptr;
  int64_t line = 1;  // number of the first line in the file
  std::string text;
};

// Reads files from the first to the last in blocks of about kBlockBytes. Text is a single document,
// thus a single block, or with a separator many, parted by lines that equal it.
class BlockReader {
 public:
  static constexpr size_t kBlockBytes = 1 << 18;
  // The files must outlive this object and the blocks.
  BlockReader(std::span<const InputFile> files, std::string separator);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // None after the last. Throws Error (74).
  std::optional<Block> next();

 private:
  bool open_next();
  bool read_more();
  size_t cut(size_t from) const;

  std::span<const InputFile> files_;
  std::string separator_;
  size_t next_file_ = 0;
  const InputFile* file_ = nullptr;
  int fd_ = -1;
  int64_t line_ = 1;
  std::string rest_;  // read and not yet given out
};

// Whether a line, without its line end, is the separator.
bool is_separator(std::string_view line, std::string_view separator);

}  // namespace neox
