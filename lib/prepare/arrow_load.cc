#include <mutex>

#include "base/plugin.h"
#include "prepare/arrow_plugin.h"

namespace neox {

const ArrowPlugin& arrow_plugin(const std::string& for_file) {
  static std::mutex mutex;
  static const ArrowPlugin* loaded = nullptr;
  std::lock_guard lock(mutex);
  if (!loaded)
    loaded = static_cast<const ArrowPlugin*>(
        load_plugin({"libneox_arrow.so", kArrowPluginEntry, NEOX_ARROW_INTERFACE},
                    for_file + " is a Parquet or Arrow file, which is read with Apache Arrow"));
  return *loaded;
}

}  // namespace neox
