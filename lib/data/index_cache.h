// Built indices in files, so that a run builds them once and all ranks map the same pages. A file
// is called after the hash of all that its content depends on, appears whole or not at all, and is
// checked by a hash of its own when it is opened. Processes agree without talking: the first that
// locks <key>.lock builds, the others wait for it and find the file; on a file system without locks
// all build. Where no directory can be written to, or the file has no room, each builds for itself.
// docs/sample-order.md has the grammar.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/numpy_random.h"

namespace neox {

// A few arrays and the memory that they lie in.
struct StoredArrays {
  std::vector<std::span<const std::byte>> arrays;  // up to IndexCache::kMostArrays
  std::shared_ptr<const void> memory;
};

class IndexCache {
 public:
  static constexpr size_t kMostArrays = 4;

  // The first of the directories that can be made and written to is written to; files are found in
  // all of them. wait: for another process to build.
  explicit IndexCache(std::vector<fs::path> directories,
                      std::chrono::seconds wait = std::chrono::minutes(30));

  // What is stored as `name`, or what build() gives, which is stored. name: with its ending, and of
  // a hash.
  StoredArrays get(const std::string& name, const std::function<StoredArrays()>& build,
                   const Poll& poll = {});

  // Damaged files that were built again; that nothing could be written. To be said once.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void warn(const std::string& text);
  std::optional<StoredArrays> find(const std::string& name);
  std::optional<StoredArrays> open(const fs::path& path);
  std::optional<fs::path> writable_directory();
  StoredArrays get_in(const fs::path& path, const std::function<StoredArrays()>& build,
                      const Poll& poll);
  // Stores it, if it can.
  StoredArrays keep(const fs::path& path, const StoredArrays& built);
  void store(const fs::path& path, const StoredArrays& built);

  std::vector<fs::path> directories_;
  std::chrono::seconds wait_;
  std::vector<std::string> warnings_;
};

}  // namespace neox
