// The text of a file of the input, or of a part of it; of an archive the texts of its members.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "prepare/byte_source.h"
#include "prepare/input_files.h"

namespace neox {

// For one thread.
class InputStream {
 public:
  virtual ~InputStream() = default;
  // The next file in it, whose text read() gives; null after the last. Throws Error (74).
  virtual std::shared_ptr<const InputFile> next_file() = 0;
  virtual size_t read(std::span<char> to) = 0;  // as of a ByteSource
  virtual int64_t consumed() const = 0;
};

struct StreamOptions {
  Separated separated = Separated::kNo;
  int threads = 1;                              // that may decode
  std::vector<std::string> columns = {"text"};  // that are read of Parquet and Arrow
  std::vector<std::string> exclude = {};        // patterns of members that are left out
};

// Bytes begin .. end of a file, which are all of them where it is packed, but for Parquet and
// Arrow, of which they are a slice. The file must outlive the stream. Of an archive the members
// come as the files of a directory do, but in its order: hidden and binary ones are left out, which
// is logged at its end. Members may be compressed, and zips; other archives in archives are
// refused.
std::unique_ptr<InputStream> open_input(const InputFile& file, int64_t begin, int64_t end,
                                        const StreamOptions& options);

// What stands at the beginning of a file, decompressed where it is compressed.
std::string read_head(const InputFile& file);

}  // namespace neox
