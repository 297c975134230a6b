#include "base/plugin.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/file.h"

namespace neox {
namespace {

// Sanitizers do not allow it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnSymbols = 0;
#else
constexpr int kOwnSymbols = RTLD_DEEPBIND;
#endif

}  // namespace

const void* load_plugin(const PluginFile& file, const std::string& purpose) {
  fs::path path = program_file().parent_path().parent_path() / "lib/neox" / file.name;
  check_io(is_found(path), purpose, ": this build has no ", path.string(),
           "; install pyarrow beside torch (env/setup.sh does), and build again");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnSymbols);
  if (!library)
    fail(Exit::kIo, purpose, ": ", ::dlerror(), "; pip install pyarrow==", NEOX_ARROW_VERSION,
         " into the directory that holds torch");
  auto entry = reinterpret_cast<const void* (*)()>(::dlsym(library, file.entry));
  check(entry, path.string(), " lacks the symbol ", file.entry);
  const void* plugin = entry();
  std::string interface = *static_cast<const char* const*>(plugin);
  check_io(interface == file.interface, purpose, ": ", path.string(), " has the interface ",
           interface, ", this program ", file.interface, "; install both from one build");
  return plugin;
}

}  // namespace neox
