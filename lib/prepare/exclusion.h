// What of directories, patterns and archives is no input, by the user's patterns of names.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

// For one thread.
class Exclusion {
 public:
  // "*.json" and other patterns without a slash are of names of files and directories, others of
  // paths: "*" and "?" stand for slashes, too.
  explicit Exclusion(const std::vector<std::string>& patterns);

  // Whether this path, below a directory or in an archive, is left out, or a directory above it;
  // it is counted for the first pattern that says so.
  bool takes(std::string_view path);
  // Logs what was left out of `where` by which pattern, "" being the input.
  void report(const std::string& where) const;
  // The patterns that have left out nothing.
  std::vector<std::string> idle() const;

 private:
  struct Pattern {
    std::string text;
    int64_t count = 0;
    std::string first = {};  // that it has left out
  };
  std::vector<Pattern> patterns_;
};

}  // namespace neox
