// The rows of a Parquet file (Apache Parquet, format 2) as JSON lines.
#pragma once
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>

#include <deque>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "prepare/parquet_plugin.h"

namespace neox {

// Several threads decode groups of rows; each holds kTextAtOnce of text and a batch of rows.
class ParquetRows : public ByteSource {
 public:
  static constexpr int kMostThreads = 16;
  static constexpr size_t kTextAtOnce = 4 << 20;

  // These columns alone. Throws Error (74) for damaged files and missing columns, std::bad_alloc.
  ParquetRows(ParquetSlice slice, std::span<const std::string> columns, int threads);
  // Throws Error (74), std::bad_alloc.
  size_t read(std::span<char> to) override;
  int64_t consumed() const override;
  int64_t rows_before() const { return rows_before_; }

 private:
  // A group of rows that is being decoded, and what of its text is ready.
  struct Group {
    int number = 0;
    std::unique_ptr<parquet::arrow::FileReader> file = {};
    std::unique_ptr<arrow::RecordBatchReader> batches = {};
    std::string text = {};
    int64_t rows = 0;      // of the text
    int64_t all_rows = 0;  // decoded so far
    bool ended = false;
    std::future<void> done = {};  // ends before what it writes to
  };

  std::unique_ptr<parquet::arrow::FileReader> open_file(int64_t rows_at_once) const;
  void choose_groups();
  void choose_columns(std::span<const std::string> columns);
  int64_t rows_at_once(int group) const;
  void decode(Group& group) const;
  void begin(Group& group) const;
  bool next_text();

  const ParquetSlice slice_;
  const int threads_;
  std::shared_ptr<arrow::io::RandomAccessFile> source_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<int> leaves_;  // of the chosen columns
  int next_group_ = 0, end_group_ = 0;
  int64_t rows_before_ = 0;  // the slice in the file
  int64_t all_rows_ = 0;     // of the slice
  std::string text_;         // of a group, as far as ...
  size_t given_ = 0;         // ... it was given out
  int64_t rows_ = 0;         // up to its end
  std::deque<Group> ahead_;  // end before what they read
};

}  // namespace neox
