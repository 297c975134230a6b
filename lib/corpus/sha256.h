// SHA-256 of files.
#pragma once
#include <string>

#include "base/file.h"

namespace neox {

// In hexadecimal digits. Throws Error (74).
std::string sha256_of_file(const fs::path& path);

}  // namespace neox
