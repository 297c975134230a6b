// Files to and from S3, in pieces, without filling the page cache.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/tasks.h"
#include "s3/s3_directory.h"

namespace neox {

inline constexpr size_t kFilesAtOnce = 4;  // each takes a piece of 64 MiB of memory

// moved: told of each piece that is there; may throw to end it.
void copy_file(const std::filesystem::path& file, S3Writer& object,
               const std::function<void(int64_t)>& moved);

// Into files of a directory by the objects' own names, flushed to the disk.
void fetch_files(S3Directory& place, const std::vector<S3Directory::Object>& objects,
                 const std::filesystem::path& dir, const Poll& poll);

}  // namespace neox
