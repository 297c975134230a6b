#include "jobs/gpu_sizes.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace neox {
namespace {

struct KnownGpu {
  const char* name;
  double most, least;
  GpuRates rates;
};
// Rates: NVIDIA's data sheets (NVLink in one
// direction, or PCIe), and instances p3dn, p4d, p5, p5en, p6, g4dn, g5, g6 and g6e of AWS.
constexpr KnownGpu kGpus[] = {
    {"v100", 32, 16, {125, 150, 1.56}}, {"a100", 80, 40, {312, 300, 6.25}},
    {"a10g", 24, 0, {70, 25, 1.56}},    {"a10", 24, 0, {125, 25, 1.56}},
    {"a30", 24, 0, {165, 100, 1.56}},   {"a40", 48, 0, {150, 56, 1.56}},
    {"l40s", 48, 0, {362, 25, 6.25}},   {"l40", 48, 0, {181, 25, 6.25}},
    {"l4", 24, 0, {121, 12.5, 1.56}},   {"t4", 16, 0, {65, 12.5, 1.56}},
    {"h100", 80, 0, {989, 450, 50}},    {"gh200", 96, 0, {989, 450, 50}},
    {"h200", 141, 0, {989, 450, 50}},   {"gb200", 186, 0, {2500, 900, 50}},
    {"b200", 180, 0, {2250, 900, 50}},  {"b300", 268, 0, {2250, 900, 100}},
    {"rtx6000", 48, 0, {130, 25, 1.56}}};

// The least number before "gb", since a slice of a GPU names that first: "h100_80gb_hbm3_2g.20gb".
// 0: there is none.
double gigabytes_in(const std::string& name) {
  double least = 0;
  for (size_t at = name.find("gb"); at != name.npos; at = name.find("gb", at + 1)) {
    size_t from = at;
    while (from > 0 && std::isdigit(static_cast<unsigned char>(name[from - 1]))) --from;
    if (from == at || at - from >= 5) continue;
    double said = std::stod(name.substr(from, at - from));
    least = least > 0 ? std::min(least, said) : said;
  }
  return least;
}

// As a word of its own: an A4000 is no A40.
bool names(const std::string& type, std::string_view gpu) {
  auto goes_on = [&](size_t i) {
    return i < type.size() && std::isalnum(static_cast<unsigned char>(type[i]));
  };
  for (size_t at = type.find(gpu); at != type.npos; at = type.find(gpu, at + 1))
    if (!goes_on(at - 1) && !goes_on(at + gpu.size())) return true;
  return false;
}

const KnownGpu* known(const std::string& name) {
  auto at = std::ranges::find_if(kGpus, [&](const KnownGpu& gpu) { return names(name, gpu.name); });
  return at == std::end(kGpus) ? nullptr : at;
}

}  // namespace

GpuSizes gpu_sizes(const std::string& type) {
  std::string name = lower_case(type);
  const KnownGpu* gpu = known(name);
  double said = gigabytes_in(name);
  // The 480 GB of a GH200 are the CPU's.
  if (said > 0 && (!gpu || said < 2 * gpu->most)) return {said, 0};
  return gpu ? GpuSizes{gpu->most, gpu->least} : GpuSizes{};
}

std::optional<GpuRates> gpu_rates(const std::string& type) {
  const KnownGpu* gpu = known(lower_case(type));
  return gpu ? std::optional(gpu->rates) : std::nullopt;
}

}  // namespace neox
