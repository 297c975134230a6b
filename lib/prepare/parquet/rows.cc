#include "prepare/parquet/rows.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <set>
#include <utility>

#include "base/error.h"
#include "prepare/parquet/json_text.h"

namespace neox {
namespace {

constexpr int64_t kReadBytes = 1 << 20, kMostRowsAtOnce = 256;

[[noreturn]] void fail_reading(const std::string& path, std::string what) {
  while (what.ends_with('.') || what.ends_with('\n')) what.pop_back();
  fail(Exit::kIo, path, " cannot be read as a Parquet file: ", what,
       "; fetch or copy it again if it is damaged or cut off");
}

[[noreturn]] void fail_reading(const std::string& path, const arrow::Status& status) {
  if (status.IsOutOfMemory()) throw std::bad_alloc();
  fail_reading(path, status.message());
}

// Of what libparquet threw.
[[noreturn]] void fail_reading(const std::string& path, const std::exception& error) {
  auto* of_status = dynamic_cast<const parquet::ParquetStatusException*>(&error);
  if (of_status) fail_reading(path, of_status->status());
  fail_reading(path, std::string(error.what()));
}

template <class T>
T value_of(arrow::Result<T> result, const std::string& path) {
  if (!result.ok()) fail_reading(path, result.status());
  return std::move(result).ValueUnsafe();
}

parquet::ReaderProperties properties() {
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();  // else it holds the columns of a group as a whole
  properties.set_buffer_size(kReadBytes);
  properties.set_page_checksum_verification(true);  // of pages that have one
  return properties;
}

std::string top_of(const parquet::FileMetaData& metadata, int leaf) {
  return metadata.schema()->Column(leaf)->path()->ToDotVector().front();
}

}  // namespace

ParquetRows::ParquetRows(ParquetSlice slice, std::span<const std::string> columns, int threads)
    : slice_(std::move(slice)), threads_(std::clamp(threads, 1, kMostThreads)) {
  source_ = value_of(arrow::io::ReadableFile::Open(slice_.path), slice_.path);
  int64_t now = value_of(source_->GetSize(), slice_.path);
  check_io(now == slice_.bytes, slice_.path, " has ", now, " bytes, and had ", slice_.bytes,
           " when it was found; it must not change while it is read");
  try {
    metadata_ = parquet::ParquetFileReader::Open(source_, properties())->metadata();
    choose_groups();
  } catch (const parquet::ParquetException& e) { fail_reading(slice_.path, e); }
  choose_columns(columns);
}

// Those that begin in the slice. Wherever a file says that its groups begin, each is taken to
// begin in the file and not before the one before it, so that one slice has it.
void ParquetRows::choose_groups() {
  int64_t rows = 0, begin = 0;
  for (int i = 0; i < metadata_->num_row_groups(); ++i) {
    auto group = metadata_->RowGroup(i);
    int64_t said = group->num_columns() > 0 ? group->ColumnChunk(0)->data_page_offset() : 0;
    begin = std::clamp(said, begin, slice_.bytes - 1);
    rows += group->num_rows();
    if (begin >= slice_.end) continue;
    end_group_ = i + 1;
    all_rows_ += group->num_rows();
    if (begin >= slice_.begin) continue;
    next_group_ = i + 1;
    rows_before_ = rows;
  }
  all_rows_ -= rows_before_;
  if (rows != metadata_->num_rows())
    fail_reading(slice_.path,
                 concat("its groups have ", rows, " rows, and the file ", metadata_->num_rows()));
}

void ParquetRows::choose_columns(std::span<const std::string> columns) {
  std::set<std::string> found;
  std::string names;
  for (int leaf = 0; leaf < metadata_->num_columns(); ++leaf) {
    std::string name = top_of(*metadata_, leaf);
    if (std::ranges::find(columns, name) != columns.end()) leaves_.push_back(leaf);
    if (found.insert(name).second) names += (names.empty() ? "" : ", ") + name;
  }
  for (const std::string& column : columns)
    check_io(found.count(column) > 0, slice_.path, " has no column '", column, "'; it has ",
             names.empty() ? "none" : names, " (--jsonl-keys names those to take)");
}

// So that a batch has about kTextAtOnce. Texts that repeat are stored once, so there may be more in
// the rows than in the file.
int64_t ParquetRows::rows_at_once(int group) const {
  auto chunks = metadata_->RowGroup(group);
  int64_t bytes = 1;
  for (int leaf : leaves_) bytes += chunks->ColumnChunk(leaf)->total_uncompressed_size();
  int64_t each = std::max<int64_t>(bytes / std::max<int64_t>(chunks->num_rows(), 1), 1);
  return std::clamp<int64_t>(kTextAtOnce / each, 1, kMostRowsAtOnce);
}

std::unique_ptr<parquet::arrow::FileReader> ParquetRows::open_file(int64_t rows_at_once) const {
  parquet::ArrowReaderProperties batches;
  batches.set_use_threads(false);
  batches.set_pre_buffer(false);
  batches.set_batch_size(rows_at_once);
  return value_of(parquet::arrow::FileReader::Make(
                      arrow::default_memory_pool(),
                      parquet::ParquetFileReader::Open(source_, properties(), metadata_), batches),
                  slice_.path);
}

// The next text of a group.
void ParquetRows::decode(Group& group) const try {
  if (!group.batches) {
    group.file = open_file(rows_at_once(group.number));
    group.batches =
        value_of(group.file->GetRecordBatchReader({group.number}, leaves_), slice_.path);
  }
  while (group.text.size() < kTextAtOnce) {
    std::shared_ptr<arrow::RecordBatch> batch = value_of(group.batches->Next(), slice_.path);
    if (!batch) {
      int64_t said = metadata_->RowGroup(group.number)->num_rows();
      if (group.all_rows != said)
        fail_reading(slice_.path, concat("group ", group.number, " has ", group.all_rows,
                                         " rows, and should have ", said));
      group.ended = true;
      return;
    }
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      for (int i = 0; i < batch->num_columns(); ++i) {
        group.text += i == 0 ? "{" : ", ";
        append_json_string(batch->column_name(i), group.text);
        group.text += ": ";
        append_json(*batch->column(i), row, group.text);
      }
      group.text += "}\n";
    }
    group.rows += batch->num_rows();
    group.all_rows += batch->num_rows();
  }
} catch (const parquet::ParquetException& e) { fail_reading(slice_.path, e); }

// The group stays in its place: a deque is added to and taken from at its ends.
void ParquetRows::begin(Group& group) const {
  auto policy = threads_ > 1 ? std::launch::async : std::launch::deferred;
  group.done = std::async(policy, [this, &group] { decode(group); });
}

// Takes the text that is ready, while the next ones are decoded; false after the last.
bool ParquetRows::next_text() {
  while (next_group_ < end_group_ && ahead_.size() < static_cast<size_t>(threads_)) {
    Group& group = ahead_.emplace_back();
    group.number = next_group_++;
    begin(group);
  }
  if (ahead_.empty()) return false;
  Group& first = ahead_.front();
  first.done.get();
  text_ = std::exchange(first.text, {});
  rows_ += std::exchange(first.rows, 0);
  given_ = 0;
  first.ended ? ahead_.pop_front() : begin(first);
  return true;
}

size_t ParquetRows::read(std::span<char> to) {
  while (given_ == text_.size())
    if (!next_text()) return 0;
  size_t n = std::min(to.size(), text_.size() - given_);
  std::memcpy(to.data(), text_.data() + given_, n);
  given_ += n;
  return n;
}

// As if each row had the same.
int64_t ParquetRows::consumed() const {
  if (rows_ == all_rows_) return slice_.end;
  double part = static_cast<double>(rows_) / static_cast<double>(all_rows_);
  return slice_.begin + static_cast<int64_t>(static_cast<double>(slice_.end - slice_.begin) * part);
}

}  // namespace neox
