#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "prepare/arrow/row_file.h"

namespace neox {
namespace {

constexpr int64_t kReadBytes = 1 << 20, kMostRowsAtOnce = 256;
constexpr const char* kAs = "a Parquet file";

// Of what libparquet threw.
[[noreturn]] void fail_parquet(const std::string& path, const std::exception& error) {
  auto* of_status = dynamic_cast<const parquet::ParquetStatusException*>(&error);
  if (of_status) fail_reading(path, kAs, of_status->status());
  fail_reading(path, kAs, std::string(error.what()));
}

parquet::ReaderProperties properties() {
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();  // else it holds the columns of a group as a whole
  properties.set_buffer_size(kReadBytes);
  properties.set_page_checksum_verification(true);  // of pages that have one
  return properties;
}

// Apache Parquet, format 2. A group of rows is one of its own.
class ParquetFile : public RowFile {
 public:
  explicit ParquetFile(const std::string& path)
      : path_(path), source_(value_of(arrow::io::ReadableFile::Open(path), path, kAs)) {
    try {
      metadata_ = parquet::ParquetFileReader::Open(source_, properties())->metadata();
      find_groups();
    } catch (const parquet::ParquetException& e) { fail_parquet(path, e); }
  }

  const std::vector<RowGroup>& groups() const override { return groups_; }

  std::vector<std::string> columns() const override {
    std::vector<std::string> names;
    std::set<std::string> found;
    for (int leaf = 0; leaf < metadata_->num_columns(); ++leaf)
      if (std::string name = column_of(leaf); found.insert(name).second) names.push_back(name);
    return names;
  }

  Batches batches(int group, std::span<const std::string> columns) const override {
    std::vector<int> leaves;
    for (int leaf = 0; leaf < metadata_->num_columns(); ++leaf)
      if (std::ranges::find(columns, column_of(leaf)) != columns.end()) leaves.push_back(leaf);
    std::shared_ptr<parquet::arrow::FileReader> file = open(rows_at_once(group, leaves));
    std::shared_ptr<arrow::RecordBatchReader> rows =
        value_of(file->GetRecordBatchReader({group}, leaves), path_, kAs);
    return [path = path_, file, rows] {
      try {
        return value_of(rows->Next(), path, kAs);
      } catch (const parquet::ParquetException& e) { fail_parquet(path, e); }
    };
  }

 private:
  void find_groups() {
    int64_t rows = 0;
    for (int i = 0; i < metadata_->num_row_groups(); ++i) {
      auto group = metadata_->RowGroup(i);
      int64_t begin = group->num_columns() > 0 ? group->ColumnChunk(0)->data_page_offset() : 0;
      groups_.push_back({begin, group->num_rows()});
      rows += group->num_rows();
    }
    if (rows != metadata_->num_rows())
      fail_reading(path_, kAs,
                   concat("its groups have ", rows, " rows, and the file ", metadata_->num_rows()));
  }

  std::string column_of(int leaf) const {
    return metadata_->schema()->Column(leaf)->path()->ToDotVector().front();
  }

  // So that a batch has about kTextAtOnce. Texts that repeat are stored once, so there may be more
  // in the rows than in the file.
  int64_t rows_at_once(int group, const std::vector<int>& leaves) const {
    auto chunks = metadata_->RowGroup(group);
    int64_t bytes = 1;
    for (int leaf : leaves) bytes += chunks->ColumnChunk(leaf)->total_uncompressed_size();
    int64_t each = std::max<int64_t>(bytes / std::max<int64_t>(chunks->num_rows(), 1), 1);
    return std::clamp<int64_t>(kTextAtOnce / each, 1, kMostRowsAtOnce);
  }

  std::unique_ptr<parquet::arrow::FileReader> open(int64_t rows_at_once) const try {
    parquet::ArrowReaderProperties batches;
    batches.set_use_threads(false);
    batches.set_pre_buffer(false);
    batches.set_batch_size(rows_at_once);
    auto file = parquet::ParquetFileReader::Open(source_, properties(), metadata_);
    return value_of(
        parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(file), batches),
        path_, kAs);
  } catch (const parquet::ParquetException& e) { fail_parquet(path_, e); }

  const std::string path_;
  std::shared_ptr<arrow::io::RandomAccessFile> source_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<RowGroup> groups_;
};

}  // namespace

std::unique_ptr<RowFile> open_parquet(const std::string& path) {
  return std::make_unique<ParquetFile>(path);
}

}  // namespace neox
