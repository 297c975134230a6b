#include "launch/efa.h"

#include <algorithm>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return std::string(trim(line));
}

}  // namespace

FabricDevices fabric_devices(const fs::path& sys) {
  const std::string kAmazon = "0x1d0f";  // PCI vendor
  FabricDevices found;
  std::error_code absent;
  for (const auto& device : fs::directory_iterator(sys / "class/infiniband", absent)) {
    std::string vendor = first_line(device.path() / "device/vendor");
    if (vendor.empty()) continue;
    (vendor == kAmazon ? found.efa : found.others).push_back(device.path().filename().string());
  }
  std::ranges::sort(found.efa);
  std::ranges::sort(found.others);
  return found;
}

std::string fabric_ports(const fs::path& sys) {
  std::map<std::string, int> ports;
  std::error_code absent;
  for (const std::string& device : fabric_devices(sys).others)
    for (const auto& port :
         fs::directory_iterator(sys / "class/infiniband" / device / "ports", absent)) {
      std::string state = first_line(port.path() / "state");  // "4: ACTIVE"
      size_t name = state.find(": ");
      if (name != state.npos) state = state.substr(name + 2);
      ++ports[concat(state, ' ', first_line(port.path() / "rate"))];
    }
  std::vector<std::string> texts;
  for (const auto& [kind, count] : ports) texts.push_back(concat(count, " x ", kind));
  return texts.empty() ? "none" : join(texts, ", ");
}

std::string instance_type(const fs::path& sys) {
  fs::path dmi = sys / "devices/virtual/dmi/id";
  return first_line(dmi / "sys_vendor") == "Amazon EC2" ? first_line(dmi / "product_name") : "";
}

int expected_efa_adapters(const std::string& instance_type) {
  static const std::map<std::string, int> kAdapters = {
      {"p4d.24xlarge", 4},     {"p4de.24xlarge", 4},    {"p5.4xlarge", 1},
      {"p5.48xlarge", 32},     {"p5e.48xlarge", 32},    {"p5en.48xlarge", 16},
      {"p6-b200.48xlarge", 8}, {"p6-b300.48xlarge", 16}};
  auto found = kAdapters.find(instance_type);
  return found == kAdapters.end() ? 0 : found->second;
}

}  // namespace neox
