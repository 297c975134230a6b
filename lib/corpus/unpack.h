// Files out of archives: zip, tar and single files, compressed with gzip, xz, zstd, bzip2 and what
// else libarchive knows.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

// The regular files of an archive below a directory, which has its name once all are there; until
// then it is called <directory>.tmp-<life>. `members`: only these; empty: all. Throws Error (74)
// for a damaged archive, a member that is not there, and one that would lie outside of the
// directory, before anything is written for it.
void unpack(const fs::path& archive, const std::vector<std::string>& members,
            const fs::path& directory, const std::string& life,
            const std::atomic<bool>* stop = nullptr);

}  // namespace neox
