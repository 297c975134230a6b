#include "convert/formats.h"

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "convert/weights.h"

namespace neox {
namespace {

std::shared_ptr<const TensorSource> open_hf_tensors(const fs::path& path) {
  return open_weights(path);
}

constexpr Format kFormats[] = {
    {"hf", "Hugging Face: a directory with config.json and its tensors", is_hf, open_hf,
     open_hf_tensors, write_hf},
    {"neox.cpp", "a run directory of neox-train, or a global_step directory in it", is_neox_cpp,
     open_neox_cpp, open_neox_cpp_tensors, write_neox_cpp},
};

std::string names() {
  std::vector<std::string> all;
  for (const Format& format : kFormats) all.push_back(format.name);
  return join(all, ", ");
}

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format& format_named(const std::string& name) {
  for (const Format& format : kFormats)
    if (name == format.name) return format;
  fail(Exit::kUsage, "the format '", name, "' is not known; there are ", names());
}

const Format& detect_format(const fs::path& path) {
  std::error_code error;
  check_io(fs::exists(path, error), path.string(), " does not exist");
  const Format* found = nullptr;
  for (const Format& format : kFormats) {
    if (!format.is_there(path)) continue;
    check_io(!found, path.string(), " looks like ", found ? found->name : "", " and like ",
             format.name, "; say with --from which it is");
    found = &format;
  }
  check_io(found, path.string(), " looks like none of the formats ", names(),
           "; name a directory with config.json and its tensors, or the save directory of a run");
  return *found;
}

void copy_companions(const ModelFiles& model, const fs::path& dir) {
  make_directories(dir);
  for (const Companion& companion : model.companions)
    write_file_atomically(dir / companion.name, read_file(companion.path));
}

}  // namespace neox
