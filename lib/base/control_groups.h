// Limits of control groups (cgroups), of versions 1 and 2.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace neox {

struct GroupLimit {
  std::string controller;  // of version 1, whose hierarchy has its name: "memory"
  // What the files in the directory of a group allow; the largest number where they say nothing.
  std::function<int64_t(const std::filesystem::path&)> unified, legacy;
};

// The least that a process is allowed in its groups and all above them. groups: as
// /proc/self/cgroup; root: as /sys/fs/cgroup.
int64_t least_in_groups(const std::filesystem::path& groups, const std::filesystem::path& root,
                        const GroupLimit& limit);

}  // namespace neox
