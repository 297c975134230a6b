#include "jobs/gpu_sizes.h"

#include <algorithm>
#include <cctype>

namespace neox {
namespace {

struct KnownGpu {
  const char* name;
  double most, least;
};
// A name stands before those that it contains.
constexpr KnownGpu kGpus[] = {
    {"v100", 32, 16}, {"a100", 80, 40}, {"a10g", 24},  {"a10", 24},   {"a30", 24},    {"a40", 48},
    {"l40s", 48},     {"l40", 48},      {"l4", 24},    {"t4", 16},    {"h100", 80},   {"gh200", 96},
    {"h200", 141},    {"gb200", 186},   {"b200", 180}, {"b300", 268}, {"rtx6000", 48}};

// The number before "gb"; 0: there is none.
double gigabytes_in(const std::string& name) {
  for (size_t at = name.find("gb"); at != name.npos; at = name.find("gb", at + 1)) {
    size_t from = at;
    while (from > 0 && std::isdigit(static_cast<unsigned char>(name[from - 1]))) --from;
    if (from < at && at - from < 5) return std::stod(name.substr(from, at - from));
  }
  return 0;
}

}  // namespace

GpuSizes gpu_sizes(const std::string& type) {
  std::string name = type;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (double said = gigabytes_in(name); said > 0) return {said, 0};
  for (const KnownGpu& gpu : kGpus)
    if (name.find(gpu.name) != name.npos) return {gpu.most, gpu.least};
  return {};
}

}  // namespace neox
