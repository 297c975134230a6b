#include <dlfcn.h>

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "comm/mpi_plugin.h"

namespace neox {
namespace {

constexpr const char* kRebuild =
    "; build it against the MPI of this machine: lib/comm/mpi/CMakeLists.txt says how";

fs::path beside_the_program() {
  return program_file().parent_path().parent_path() / "lib/neox/libneox_mpi.so";
}

const MpiPlugin* load(const std::string& path) {
  // Open MPI's components look up its symbols among the global ones.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) fail(Exit::kUsage, "the MPI plugin cannot be loaded: ", ::dlerror(), kRebuild);
  auto entry = reinterpret_cast<MpiPluginEntry>(::dlsym(library, kMpiPluginEntry));
  check_usage(entry, path, " is no MPI plugin: it lacks the symbol ", kMpiPluginEntry);
  const MpiPlugin* plugin = entry();
  check_usage(std::string(plugin->build) == mpi_plugin_build(), path, " was built for ",
              plugin->build, ", this program is ", mpi_plugin_build(), kRebuild);
  return plugin;
}

}  // namespace

const MpiPlugin& mpi_plugin(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, const MpiPlugin*> loaded;
  std::string file = (path.empty() ? beside_the_program() : fs::absolute(path)).string();
  std::lock_guard lock(mutex);
  if (loaded.empty()) {
    check_usage(
        fs::exists(file),
        path.empty() ? "this build has no MPI plugin: there is no " : "there is no MPI plugin at ",
        file,
        "; install libopenmpi-dev libpmix-dev and rebuild, or name one with "
        "NEOX_MPI_PLUGIN=/path/to/libneox_mpi.so");
    loaded[file] = load(file);
  }
  check_usage(loaded.count(file), "the MPI plugin ", loaded.begin()->first,
              " is loaded already; a process cannot load ", file, " too");
  return *loaded[file];
}

}  // namespace neox
