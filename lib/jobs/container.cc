#include "jobs/container.h"

#include "base/error.h"
#include "base/text.h"

namespace neox {

namespace fs = std::filesystem;

namespace {

std::string without_slash(std::string folder) {
  while (folder.ends_with('/')) folder.pop_back();
  return folder;
}

}  // namespace

bool is_image_file(const std::string& image) {
  bool remote = image.find("://") != image.npos;
  return !remote && (image.starts_with("/") || image.starts_with(".") || image.ends_with(".sqsh") ||
                     image.ends_with(".sif"));
}

void check_mounts(const std::string& mounts) {
  for (const std::string& mount : split(mounts, ',')) {
    auto parts = split(mount, ':');
    check_usage(parts.size() >= 2 && !parts[0].empty() && !parts[1].empty(), "--mounts ", mounts,
                ": '", mount, "' is no pair; write FROM:TO, such as /fsx:/fsx");
  }
}

// Of mounts within each other the inner one holds.
fs::path path_outside(const std::string& path, const std::string& mounts) {
  std::string outside = path;
  size_t longest = 0;
  for (const std::string& mount : split(mounts, ',')) {
    auto parts = split(mount, ':');
    if (parts.size() < 2) continue;
    std::string from = without_slash(parts[0]), to = without_slash(parts[1]);
    if (to.size() < longest || !(path + "/").starts_with(to + "/")) continue;
    outside = from + path.substr(to.size());
    longest = to.size();
  }
  return outside;
}

std::vector<std::string> absolute_paths(const Config& config) {
  std::vector<std::string> paths;
  for (const NamedDataset& dataset : datasets_of(config.data)) paths.push_back(dataset.prefix);
  for (const fs::path& path : {config.tokenizer.vocab_file, config.tokenizer.merge_file,
                               config.checkpoint.save, config.checkpoint.load, config.train.log_dir,
                               config.train.tensorboard_dir, config.data.cache_dir})
    paths.push_back(path);
  std::erase_if(paths, [](const std::string& path) { return !path.starts_with("/"); });
  return paths;
}

}  // namespace neox
