// The entry of libneox_arrow.so, its only symbol that others see.
#include "prepare/arrow/row_lines.h"
#include "prepare/arrow_plugin.h"

namespace neox {
namespace {

std::unique_ptr<ByteSource> open(const RowSlice& slice, std::span<const std::string> columns,
                                 int threads) {
  return std::make_unique<RowLines>(slice, columns, threads);
}

int64_t rows_before(const RowSlice& slice) { return RowLines(slice, {}, 1).rows_before(); }

}  // namespace
}  // namespace neox

extern "C" [[gnu::visibility("default")]] const neox::ArrowPlugin* neox_arrow_plugin() {
  static const neox::ArrowPlugin plugin{NEOX_ARROW_INTERFACE, neox::open, neox::rows_before};
  return &plugin;
}
