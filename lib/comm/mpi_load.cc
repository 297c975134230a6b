#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "comm/mpi_plugin.h"

namespace neox {
namespace {

constexpr const char* kRebuild =
    "; build it against the MPI of this machine: lib/comm/mpi/CMakeLists.txt says how";

std::string beside_the_program() {
  std::error_code error;
  auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  check_usage(!error, "/proc/self/exe: ", error.message(),
              "; name the MPI plugin with NEOX_MPI_PLUGIN=/path/to/libneox_mpi.so");
  return (program.parent_path().parent_path() / "lib/neox/libneox_mpi.so").string();
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
  std::string file = path.empty() ? beside_the_program() : std::filesystem::absolute(path).string();
  std::lock_guard lock(mutex);
  if (loaded.empty()) {
    check_usage(
        std::filesystem::exists(file),
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
