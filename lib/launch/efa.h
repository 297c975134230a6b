// EFA, the network adapters of AWS: how many this machine has, and how many its type should have.
#pragma once
#include <filesystem>
#include <string>

namespace neox {

// Devices of class infiniband made by Amazon. Others, as the NVLink management devices of p6-b200,
// do not count.
int efa_adapters(const std::filesystem::path& sys = "/sys");

// "p5.48xlarge"; "" where the firmware does not tell.
std::string instance_type(const std::filesystem::path& sys = "/sys");

// Of that type with all its adapters attached; 0 where that is not known.
int expected_efa_adapters(const std::string& instance_type);

}  // namespace neox
