// EFA, the network adapters of AWS: how many this machine has, and how many its type should have.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace neox {

// Names, sorted, of the devices of class infiniband. NVLink's management devices of p6-b200 stand
// there too, so the vendor tells which are EFA adapters, not the name.
struct FabricDevices {
  std::vector<std::string> efa, others;
};
FabricDevices fabric_devices(const std::filesystem::path& sys = "/sys");

// The ports of the others by state and rate: "8 x ACTIVE 400 Gb/sec (4X NDR), 1 x DOWN 10 Gb/sec
// (4X SDR)"; "none" where there are none.
std::string fabric_ports(const std::filesystem::path& sys = "/sys");

// "p5.48xlarge"; "" where the firmware does not tell.
std::string instance_type(const std::filesystem::path& sys = "/sys");

// Of that type with all its adapters attached; 0 where that is not known.
int expected_efa_adapters(const std::string& instance_type);

}  // namespace neox
