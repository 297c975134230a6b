#include "model/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"

namespace neox {
namespace {

struct Branch {
  int driver, cuda;
};

// The first driver branch that serves each version of CUDA, on Linux; newest first.
constexpr std::array<Branch, 21> kBranches = {{
    {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {560, 12060}, {555, 12050},
    {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000}, {520, 11080},
    {515, 11070}, {510, 11060}, {495, 11050}, {470, 11040}, {465, 11030}, {460, 11020},
    {455, 11010}, {450, 11000}, {440, 10020},
}};

bool is_version(const std::string& word) {
  return word.find('.') != std::string::npos &&
         word.find_first_not_of("0123456789.") == std::string::npos && word.front() != '.';
}

std::string cuda_text(int version) { return concat(version / 1000, ".", version / 10 % 100); }

// The branch that first serves this major version of CUDA.
int oldest_driver(int runtime) {
  int oldest = 0;
  for (const Branch& branch : kBranches)
    if (branch.cuda / 1000 == runtime / 1000) oldest = branch.driver;
  return oldest;
}

// Calls name(argument) of a library that may be absent; false where it is.
template <class Argument>
bool call_of(void* library, const char* name, Argument argument) {
  auto function = library ? reinterpret_cast<int (*)(Argument)>(::dlsym(library, name)) : nullptr;
  return function && function(argument) == 0;
}

std::string nvml_version() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!library) return "";
  auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  auto get =
      reinterpret_cast<int (*)(char*, unsigned)>(::dlsym(library, "nvmlSystemGetDriverVersion"));
  char text[96] = "";
  if (!init || !get || init() != 0 || get(text, sizeof text) != 0) return "";
  return text;
}

}  // namespace

std::string driver_version(const std::string& proc_text) {
  std::istringstream words(proc_text.substr(0, proc_text.find('\n')));
  std::string word;
  for (bool module = false; words >> word;) {
    if (module && is_version(word)) return word;
    module |= word == "Module";
  }
  return "";
}

int cuda_of_driver(const std::string& version) {
  int branch = 0;
  std::istringstream(version) >> branch;
  for (const Branch& b : kBranches)
    if (branch >= b.driver) return b.cuda;
  return 0;
}

bool driver_is_loaded() {
  std::error_code error;
  return std::filesystem::exists("/proc/driver/nvidia/version", error);
}

Driver find_driver() {
  Driver driver;
  std::ifstream file("/proc/driver/nvidia/version");
  driver.version = driver_version({std::istreambuf_iterator<char>(file), {}});
  if (driver.version.empty()) driver.version = nvml_version();
  call_of(::dlopen("libcuda.so.1", RTLD_NOW), "cuDriverGetVersion", &driver.cuda);
  return driver;
}

std::string driver_problem(const Driver& driver, int runtime, const std::string& host) {
  if (driver.version.empty() && driver.cuda == 0) return "";
  int needed = oldest_driver(runtime);
  std::string build = concat("this build needs ", cuda_text(runtime),
                             needed ? concat(", driver ", needed, " or newer") : std::string());
  int served = std::max(driver.cuda, 0);
  if (served == 0) served = cuda_of_driver(driver.version);
  if (served != 0 && served / 1000 < runtime / 1000) {
    std::string other =
        runtime / 1000 == 13 && served / 1000 == 12
            ? "build with the wheel for CUDA 12 (docs/dependencies.md), or use cuda-compat"
            : "update the driver, or use cuda-compat";
    return concat(host, ": driver ", driver.version, driver.version.empty() ? "" : " ",
                  "serves CUDA ", cuda_text(served), "; ", build, ": ", other);
  }
  if (driver.cuda == 0)
    return concat(host, ": driver ", driver.version,
                  " is loaded, but libcuda.so.1 is not found: in a container set "
                  "NVIDIA_DRIVER_CAPABILITIES=compute,utility and NVIDIA_VISIBLE_DEVICES");
  return "";
}

std::string torch_problem(const std::string& compiled, const std::string& show_config) {
  const std::string key = "TORCH_VERSION=";
  size_t at = show_config.find(key);
  if (at == std::string::npos) return "";
  std::string loaded = show_config.substr(at + key.size());
  loaded = loaded.substr(0, loaded.find_first_of(", \n"));
  if (loaded == compiled) return "";
  return concat("LibTorch ", loaded, " was loaded, but this program was built with ", compiled,
                ", and its interface changes with each version: link `site` to a wheel of torch ",
                compiled, " (pip install torch==", compiled, "), or build again with env/build.sh");
}

}  // namespace neox
