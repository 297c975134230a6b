// The files that corpora come in: JSON lines, plain text and dumps of MediaWiki, as they are,
// compressed, or in archives; named one by one, by patterns, or by their directory.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

struct InputFile {
  // Of an archive those of its members count. kJsonArray: one array, whose elements are as the
  // lines of kJsonLines.
  enum class Format { kJsonLines, kText, kWiki, kJsonArray };
  // A file that holds another one, or others, is read from its beginning to its end by one rank;
  // the groups of rows of Parquet and Arrow by several.
  enum class Packing { kNone, kCompressed, kTar, kZip, kColumnar };
  std::string path;  // of a member "a.tar: name"
  Format format = Format::kText;
  int64_t bytes = 0;  // on the disk
  Packing packing = Packing::kNone;
  int64_t modified = 0;  // when it was found, nanoseconds since 1970; known to the finder alone
};

// Whether it comes as JSON lines.
inline bool is_json(InputFile::Format format) {
  return format == InputFile::Format::kJsonLines || format == InputFile::Format::kJsonArray;
}

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<std::string> left_out;  // binary files of directories
  int64_t bytes = 0;
};

// The files of a list of paths; a path may be several, separated by commas, and a pattern ("*",
// "?", "[a-z]") stands for all files of such names in the order of their names. The files of a
// directory come in the order of their paths, without hidden ones, and each file once. `own` are
// the tokenizer's files, which no directory or pattern means; neither does it mean a temporary file
// (*.tmp-<number>), and a download that is not whole (*.part beside *.part.from) is refused. *.xml
// that begins with "<mediawiki" is a dump of MediaWiki. *.jsonl,
// *.ndjson and *.json are JSON lines, or one JSON array where the first byte that is not blank is
// '['; *.txt, *.text and *.md are text; others are JSON lines where that byte is '{'. With a
// separator those others are text. Compressed files (gzip, zstd, xz, bzip2, lz4), archives (tar,
// zip), Parquet and Arrow are known by their content; the rows of the latter two are JSON lines.
// `exclude`: patterns of what directories and patterns do not mean either (prepare/exclusion.h).
// Throws Error (64, 74) for what is missing, damaged or binary.
enum class Separated { kNo, kYes };
InputFiles find_input_files(std::span<const std::string> paths, Separated separated,
                            std::span<const std::string> own = {},
                            const std::vector<std::string>& exclude = {});

// The paths of files whose size, or whose time alone, is not that with which they were found. Those
// that are gone were read as they were.
struct ChangedFiles {
  std::vector<std::string> other_size, other_time;
};
ChangedFiles changed_files(const InputFiles& input);

// Logs how many files of which kinds there are.
void describe_input(const InputFiles& input);

}  // namespace neox
