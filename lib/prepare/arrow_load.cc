#include <dlfcn.h>

#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "prepare/arrow_plugin.h"

namespace neox {
namespace {

// libparquet has a simdjson of its own, of another version and with the same names: it must not
// take that of the program. Sanitizers do not allow it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnSymbols = 0;
#else
constexpr int kOwnSymbols = RTLD_DEEPBIND;
#endif

const ArrowPlugin* load(const std::string& for_file) {
  fs::path path = program_file().parent_path().parent_path() / "lib/neox/libneox_arrow.so";
  std::string what = for_file + " is a Parquet or Arrow file, which is read with Apache Arrow: ";
  check_io(is_found(path), what, "this build has no ", path.string(),
           "; install pyarrow beside torch (env/setup.sh does), and build again");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnSymbols);
  if (!library)
    fail(Exit::kIo, what, ::dlerror(), "; pip install pyarrow==", NEOX_ARROW_VERSION,
         " into the directory that holds torch");
  auto entry = reinterpret_cast<ArrowPluginEntry>(::dlsym(library, kArrowPluginEntry));
  check(entry, path.string(), " lacks the symbol ", kArrowPluginEntry);
  const ArrowPlugin* plugin = entry();
  check_io(std::string(plugin->interface) == NEOX_ARROW_INTERFACE, what, path.string(),
           " has the interface ", plugin->interface,
           ", this program " NEOX_ARROW_INTERFACE "; install both from one build");
  return plugin;
}

}  // namespace

const ArrowPlugin& arrow_plugin(const std::string& for_file) {
  static std::mutex mutex;
  static const ArrowPlugin* loaded = nullptr;
  std::lock_guard lock(mutex);
  if (!loaded) loaded = load(for_file);
  return *loaded;
}

}  // namespace neox
