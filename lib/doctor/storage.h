// A directory's file system: its kind, its room, and how fast this node writes and reads there.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "doctor/report.h"

namespace neox {

struct Mount {
  std::string point, kind, source;  // "/fsx", "lustre", "10.0.0.1@tcp:/abc"
};

// The mount that holds the path, out of the text of /proc/self/mountinfo.
Mount find_mount(const std::string& mountinfo, const std::string& path);

// Kind, striping (Lustre, where lfs is there), free space and inodes of the directory, which must
// exist; then the rates of one file of so many bytes, written with fsync and read back past the
// page cache as far as the kernel lets go of it. The file is removed.
// `suffix` goes with the names of the rates.
void check_storage(const std::filesystem::path& dir, int64_t bytes, const std::string& suffix,
                   RankReport& report);

}  // namespace neox
