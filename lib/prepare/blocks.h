// Input files in blocks: whole lines of JSON, also made of an array, whole documents of text, or
// parts of a long text. The ranks of a job share the input by its bytes; each has the documents
// that begin in its share.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepare/input_stream.h"

namespace neox {

struct BlockRules {
  std::string separator = {};  // lines that part the documents of a text; "": one document
  // A text of one document comes whole, or in parts whose tokens, joined, are those of the text
  // (Tokenizer::parts_at_words() says for which tokenizers): it is cut before a space between ASCII
  // letters or digits.
  enum class Texts { kWhole, kParts } texts = Texts::kWhole;
  int threads = 1;                              // that may decode compressed files for one reader
  std::vector<std::string> columns = {"text"};  // that are read of Parquet and Arrow
  std::vector<std::string> exclude = {};        // patterns of members of archives, left out
};

// Bytes begin .. end of a file; they begin and end where the rules let a block begin and end. A
// packed file is one slice, of the rank in whose share its bytes begin; but of Parquet and Arrow a
// rank has the groups of rows that begin in its share.
struct Slice {
  const InputFile* file = nullptr;
  int64_t begin = 0, end = 0;
};

// The share of a rank, in order; one after another the shares of all ranks are the input. Empty
// where the rank has none. The files must outlive the slices.
std::vector<Slice> slices_of(const InputFiles& input, const BlockRules& rules, int rank, int size);

// The number of line ends in a file before a position, of elements of an array, or of rows of
// Parquet, counted when it is first asked for.
class LinesBefore;

// Where a block ends, and reading may go on, in another process too.
struct ReadPosition {
  int64_t slice = 0;   // of the reader's
  int64_t offset = 0;  // of the first byte that was not given out, in the file as text, an archive
                       // being that of its members one after another; in rows behind `begin`
  int64_t line = 1;    // its number in the slice, or in the member
  bool operator==(const ReadPosition&) const = default;
};

struct Block {
  std::shared_ptr<const InputFile> file = {};  // or the member of an archive
  int64_t line = 1;                            // number of the first line in the slice, or member
  std::string text = {};
  int64_t input_bytes = 0;  // of the input as it is on the disk, that were read for it
  bool begins_document = true, ends_document = true;  // of a text's part
  std::shared_ptr<LinesBefore> before = {};           // the slice; none: it begins the file
  ReadPosition end = {};

  // In the file, of a line of the block counted from `line`: "a.jsonl:7", or "a.json: element 7".
  // May read all of the file before the slice. Thread-safe.
  std::string place(int64_t line) const;
  // The same at no cost: "a.jsonl: line 7 from byte 1234 on", where the slice begins there.
  std::string place_in_slice(int64_t line) const;
};

// Reads slices from the first to the last in blocks of about kBlockBytes. A byte order mark at the
// beginning of a file is left out.
class BlockReader {
 public:
  static constexpr int64_t kBlockBytes = 1 << 18;
  // Begins behind a block that ended at `from`, of the same slices; none: with the first.
  BlockReader(std::vector<Slice> slices, BlockRules rules, std::optional<ReadPosition> from = {});
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // None after the last. Throws Error (74).
  std::optional<Block> next();

 private:
  bool open_slice();
  bool open_file();
  void skip(int64_t bytes);
  void keep_tail(std::string_view read);
  void keep_tail_before(int64_t offset);
  bool read_more();
  void check_dump_end() const;
  std::optional<Block> read_block();
  Block take(size_t bytes);

  std::vector<Slice> slices_;
  BlockRules rules_;
  std::optional<ReadPosition> from_;
  size_t next_slice_ = 0;
  Slice slice_;
  std::shared_ptr<LinesBefore> before_;
  std::unique_ptr<InputStream> stream_;    // of the slice
  std::shared_ptr<const InputFile> file_;  // that is read from it
  bool file_begun_ = false;                // a block of it was given out
  bool file_ended_ = false;                // all of it was read
  int64_t line_ = 1;
  int64_t given_ = 0;     // up to here in blocks, as in ReadPosition
  int64_t consumed_ = 0;  // so many bytes of the slice the blocks before say they took
  int64_t left_ = 0;      // that they did not say at the end of the slice before
  std::string rest_;      // read and not yet given out
  static constexpr size_t kTailBytes = 64;
  std::string tail_;  // the last bytes that were read of the file
};

// Whether a line, without its line end, is the separator.
bool is_separator(std::string_view line, std::string_view separator);

// The first place at or behind `at` where a block may begin; the size of the text where there is
// none.
size_t next_cut(std::string_view text, size_t at, InputFile::Format format,
                const BlockRules& rules);

}  // namespace neox
