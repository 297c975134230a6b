// Files whose rows lie in groups, each of which can be decoded by itself: Parquet, and Arrow's own.
#pragma once
#include <arrow/record_batch.h>
#include <arrow/result.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace neox {

constexpr int64_t kTextAtOnce = 4 << 20;  // bytes, of which batches are to have about as many

struct RowGroup {
  int64_t begin = 0;  // its first byte in the file, as far as the file says it
  int64_t rows = 0;
};

// The next rows of a group, some at once; null after the last. Throws Error (74), std::bad_alloc.
using Batches = std::function<std::shared_ptr<arrow::RecordBatch>()>;

// Threads may call it at the same time.
class RowFile {
 public:
  virtual ~RowFile() = default;
  virtual const std::vector<RowGroup>& groups() const = 0;  // in the order of the file
  virtual std::vector<std::string> columns() const = 0;
  // Of these columns alone, which the file has. The file may go before them.
  virtual Batches batches(int group, std::span<const std::string> columns) const = 0;
};

// Throw Error (74) for files that are damaged, std::bad_alloc.
std::unique_ptr<RowFile> open_parquet(const std::string& path);
std::unique_ptr<RowFile> open_arrow(const std::string& path);

// `as`: "a Parquet file".
[[noreturn]] void fail_reading(const std::string& path, const char* as, std::string what);
[[noreturn]] void fail_reading(const std::string& path, const char* as,
                               const arrow::Status& status);

template <class T>
T value_of(arrow::Result<T> result, const std::string& path, const char* as) {
  if (!result.ok()) fail_reading(path, as, result.status());
  return std::move(result).ValueUnsafe();
}

}  // namespace neox
