// The entry of libneox_parquet.so, its only symbol that others see.
#include "base/version.h"
#include "prepare/parquet/rows.h"
#include "prepare/parquet_plugin.h"

namespace neox {
namespace {

std::unique_ptr<ByteSource> open(const ParquetSlice& slice, std::span<const std::string> columns,
                                 int threads) {
  return std::make_unique<ParquetRows>(slice, columns, threads);
}

int64_t rows_before(const ParquetSlice& slice) { return ParquetRows(slice, {}, 1).rows_before(); }

}  // namespace
}  // namespace neox

extern "C" [[gnu::visibility("default")]] const neox::ParquetPlugin* neox_parquet_plugin() {
  static const neox::ParquetPlugin plugin{neox::kVersion, neox::open, neox::rows_before};
  return &plugin;
}
