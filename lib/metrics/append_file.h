// A file that only grows. Each append is handed to the operating system at once, so that a process
// that dies loses nothing. Errors name the path and the cause (exit code 74).
#pragma once
#include <string_view>

#include "base/file.h"

namespace neox {

class AppendFile {
 public:
  enum class Open { kNew, kExtend };  // kNew: the file must not exist
  AppendFile(const fs::path& path, Open how);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  void append(std::string_view bytes);
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  int fd_;
};

}  // namespace neox
