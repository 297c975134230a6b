// The rows of a file as JSON lines.
#pragma once
#include <deque>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "prepare/arrow/row_file.h"
#include "prepare/arrow_plugin.h"

namespace neox {

// Several threads decode groups of rows; each holds kTextAtOnce of text and a batch of rows.
class RowLines : public ByteSource {
 public:
  static constexpr int kMostThreads = 16;

  // These columns alone. Throws Error (74) for damaged files and missing columns, std::bad_alloc.
  RowLines(RowSlice slice, std::span<const std::string> columns, int threads);
  // Throws Error (74), std::bad_alloc.
  size_t read(std::span<char> to) override;
  int64_t consumed() const override;
  int64_t rows_before() const { return rows_before_; }

 private:
  // A group of rows that is being decoded, and what of its text is ready.
  struct Group {
    int number = 0;
    Batches next = {};
    std::shared_ptr<arrow::RecordBatch> batch = {};
    int64_t row = 0;  // of the batch, the next one
    std::string text = {};
    int64_t rows = 0;      // of the text
    int64_t all_rows = 0;  // decoded so far
    bool ended = false;
    std::future<void> done = {};  // ends before what it writes to
  };

  void choose_groups();
  void check_columns() const;
  void decode(Group& group) const;
  void begin(Group& group) const;
  bool next_text();

  const RowSlice slice_;
  const std::vector<std::string> columns_;
  const int threads_;
  std::unique_ptr<RowFile> file_;
  int next_group_ = 0, end_group_ = 0;
  int64_t rows_before_ = 0;  // the slice in the file
  int64_t all_rows_ = 0;     // of the slice
  std::string text_;         // of a group, as far as ...
  size_t given_ = 0;         // ... it was given out
  int64_t rows_ = 0;         // up to its end
  std::deque<Group> ahead_;  // end before what they read
};

}  // namespace neox
