// What NCCL will talk over between nodes, told from what a node holds: its fabric devices, the
// network plugin, the variables that choose.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/environment.h"

namespace neox {

struct NetworkQuery {
  std::string nccl_version;          // "2.28.9"
  Environment env;                   // NCCL_*, FI_*, OFI_NCCL_*, HOME
  int num_nodes = 1;                 // of the job
  std::filesystem::path root = "/";  // below it sys/class/infiniband, opt/amazon, etc/nccl.conf
  // The path of the shared library that the loader would take for this name, or "".
  std::function<std::string(const std::string& name)> find_library;
};

struct NetworkReport {
  std::vector<std::string> lines;
  std::vector<std::string> warnings;  // of what makes a job of several nodes slow
};

NetworkReport describe_network(const NetworkQuery& query);

// By dlopen: what the loader takes for the name, or "".
std::string find_library(const std::string& name);

}  // namespace neox
