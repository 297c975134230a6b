// The NVIDIA driver of this node against the CUDA runtime of this build, told before the first
// call of CUDA; and the LibTorch that was loaded against the one compiled with.
#pragma once
#include <string>

namespace neox {

struct Driver {
  std::string version;  // of the kernel module, "550.54.15"; "" where there is none
  int cuda = 0;         // what libcuda.so.1 serves, 12040 is 12.4; 0 where it is not found
};

bool driver_is_loaded();  // without looking which
Driver find_driver();     // /proc/driver/nvidia/version, else NVML; libcuda's cuDriverGetVersion

// The version in the text of /proc/driver/nvidia/version, of all its forms, or "".
std::string driver_version(const std::string& proc_text);

// The highest CUDA that a driver serves, 12040 for "550.54.15"; 0 where it is not known. (CUDA
// Toolkit Release Notes, "CUDA Toolkit and Corresponding Driver Versions".)
int cuda_of_driver(const std::string& version);

// "" where the driver serves a program built for `runtime` (13000 is 13.0), or there is none. A
// driver serves all of a major version of CUDA; cuda-compat is seen as libcuda's version.
std::string driver_problem(const Driver& driver, int runtime, const std::string& host);

// "" where at::show_config() names the version compiled with.
std::string torch_problem(const std::string& compiled, const std::string& show_config);

}  // namespace neox
