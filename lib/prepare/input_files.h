// The files that corpora come in: JSON lines and plain text, named one by one or by their
// directory.
#pragma once
#include <cstdint>
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

}  // namespace neox
