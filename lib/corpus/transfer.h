// One request for what is missing of a file, and the file as far as it has come.
#pragma once
#include <functional>
#include <string>

#include "base/file.h"

namespace neox {

// The bytes that have come so far, and which version of which file they are of: an ETag or a date,
// without which a transfer starts again. Locked, so that two processes do not write one file.
class PartFile {
 public:
  // <to>.part and <to>.part.from. Throws Error (74) where another process has it.
  explicit PartFile(const fs::path& to);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile();

  int64_t bytes() const { return bytes_; }
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

  void restart(const std::string& version);
  void append(const char* data, size_t size);
  // The file has its name from now on.
  void publish(const fs::path& to);

 private:
  std::string path_, from_, version_;
  Descriptor file_;
  int64_t bytes_ = 0;
  bool published_ = false;
};

// What a transfer tells while it runs, and asks.
struct TransferWatch {
  std::function<void(int64_t)> came = [](int64_t) {};   // the part has so many bytes now
  std::function<void(int64_t)> whole = [](int64_t) {};  // the file has so many
  std::function<bool()> stopped = [] { return false; };
};

struct TransferLimits {
  double connect_seconds = 8, stall_seconds = 30;
  int64_t file_bytes = -1;  // another size is that of another file; -1: not known
};

struct Outcome {
  enum class Next { kDone, kResume, kOtherAddress } next = Next::kDone;
  bool connected = false;
  std::string message = {};
  double pause_seconds = 0;  // that the server asks for before the next try
};

// Asks for the rest of the file, or all of it where the server has another version. Throws Error
// (74) where the part cannot be written, and where the watch says that it is stopped.
Outcome transfer(const std::string& url, PartFile& part, const TransferLimits& limits,
                 const TransferWatch& watch);

}  // namespace neox
