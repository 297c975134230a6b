// The entry of libneox_parquet.so, its only symbol that others see.
#include "base/version.h"
#include "prepare/parquet/rows.h"
#include "prepare/parquet_plugin.h"

namespace neox {
namespace {

std::unique_ptr<ByteSource> open(const std::string& path, int64_t bytes,
                                 std::span<const std::string> columns, int threads) {
  return std::make_unique<ParquetRows>(path, bytes, columns, threads);
}

}  // namespace
}  // namespace neox

extern "C" [[gnu::visibility("default")]] const neox::ParquetPlugin* neox_parquet_plugin() {
  static const neox::ParquetPlugin plugin{neox::kVersion, neox::open};
  return &plugin;
}
