// The image that a job runs in, and the folders of a node that it sees there:
// "FROM:TO[:OPTIONS],FROM:TO...".
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace neox {

// Whether it is a file, and not a name that a registry knows.
bool is_image_file(const std::string& image);

// Throws Error (64) for --mounts of another form.
void check_mounts(const std::string& mounts);

// The path on this machine of a path in the container.
std::filesystem::path path_outside(const std::string& path, const std::string& mounts);

// Of data, cache, tokenizer, checkpoints and metrics: what the script mounts, where it can be.
std::vector<std::string> absolute_paths(const Config& config);

}  // namespace neox
