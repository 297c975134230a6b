#include "jobs/container.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

namespace fs = std::filesystem;

// What follows the mounted folder that holds the path.
struct Mounted {
  std::string from, rest;
};

std::optional<Mounted> mount_of(const std::string& path, const std::string& mounts) {
  for (const std::string& mount : split(mounts, ',')) {
    auto parts = split(mount, ':');
    if (parts.size() >= 2 && (path + "/").starts_with(parts[1] + "/"))
      return Mounted{parts[0], path.substr(parts[1].size())};
  }
  return std::nullopt;
}

// An image has these itself, and programs of its own in some of the others.
bool is_of_system(const fs::path& folder) {
  constexpr std::array kTop = {"home", "media", "mnt", "opt", "root", "run", "srv", "tmp", "var"};
  constexpr std::array kSystem = {"bin",  "dev",  "etc", "lib", "lib64",
                                  "proc", "sbin", "sys", "usr"};
  auto second = std::next(folder.begin());
  if (second == folder.end()) return true;
  bool top = std::next(second) == folder.end();
  return std::ranges::find(kSystem, second->string()) != kSystem.end() ||
         (top && std::ranges::find(kTop, second->string()) != kTop.end());
}

// Whether another folder is mounted below this one, which a mount of its own would hide.
bool holds_mount(const std::string& folder, const std::string& mounts) {
  return std::ranges::any_of(split(mounts, ','), [&](const std::string& mount) {
    auto parts = split(mount, ':');
    return parts.size() >= 2 && parts[0] != parts[1] && parts[1].starts_with(folder + "/");
  });
}

std::vector<std::string> paths_of(const Config& config) {
  const DataConfig& data = config.data;
  std::vector<std::string> paths = {data.data_path, config.tokenizer.vocab_file,
                                    config.tokenizer.merge_file, config.checkpoint.save,
                                    config.checkpoint.load};
  for (const auto* list :
       {&data.blend.paths, &data.train.paths, &data.train.labels, &data.valid.paths,
        &data.valid.labels, &data.test.paths, &data.test.labels})
    paths.insert(paths.end(), list->begin(), list->end());
  std::erase_if(paths, [](const std::string& path) { return !path.starts_with("/"); });
  return paths;
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

fs::path path_outside(const std::string& path, const std::string& mounts) {
  auto mounted = mount_of(path, mounts);
  return mounted ? mounted->from + mounted->rest : path;
}

std::string mounts_for(const Config& config, std::string mounts) {
  std::error_code error;
  for (const std::string& path : paths_of(config)) {
    if (mount_of(path, mounts)) continue;
    fs::path folder = path;
    while (!fs::is_directory(folder, error)) folder = folder.parent_path();
    if (is_of_system(folder) || holds_mount(folder.string(), mounts)) continue;
    mounts += concat(mounts.empty() ? "" : ",", folder.string(), ":", folder.string());
  }
  return mounts;
}

}  // namespace neox
