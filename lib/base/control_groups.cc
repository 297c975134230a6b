#include "base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace neox {

namespace fs = std::filesystem;

namespace {

// In the group and all above it. A container may see the path but not the group, and of what lies
// outside of its own root only "..": then its root is what counts.
int64_t least_on_the_way(const fs::path& root, std::string path,
                         const std::function<int64_t(const fs::path&)>& allowed) {
  if (path.starts_with("/..")) path = "/";
  int64_t least = allowed(root);
  fs::path group = root;
  for (const fs::path& part : fs::path(path).relative_path())
    if (!part.empty()) least = std::min(least, allowed(group /= part));
  return least;
}

}  // namespace

int64_t least_in_groups(const fs::path& groups, const fs::path& root, const GroupLimit& limit) {
  int64_t least = std::numeric_limits<int64_t>::max();
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string path = line.substr(second + 1),
                controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (line.starts_with("0::"))
      least = std::min(least, least_on_the_way(root, path, limit.unified));
    else if (controllers.find("," + limit.controller + ",") != std::string::npos)
      least = std::min(least, least_on_the_way(root / limit.controller, path, limit.legacy));
  }
  return least;
}

}  // namespace neox
