#include "jobs/profile.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/value.h"

namespace neox {
namespace {

using Kind = Value::Kind;

[[noreturn]] void fail_type(const Value& value, const std::string& key, const char* wanted) {
  fail(Exit::kUsage, value.place.text(), ": ", key, " is ", value.show(), "; it must be ", wanted);
}

std::string text_of(const Value& value, const std::string& key) {
  if (value.kind == Kind::kNull) return "";
  if (value.kind == Kind::kList || value.kind == Kind::kMap) fail_type(value, key, "text");
  return value.text;
}

std::vector<std::string> texts_of(const Value& value, const std::string& key) {
  if (value.kind == Kind::kNull) return {};
  if (value.kind != Kind::kList) fail_type(value, key, "a list of texts");
  std::vector<std::string> texts;
  for (const Value& item : value.items) texts.push_back(text_of(item, key));
  return texts;
}

GpuOption gpu_option_of(const Value& value) {
  std::string text = text_of(value, "gpu_option");
  if (text == "gpus-per-node") return GpuOption::kGpusPerNode;
  if (text == "gres") return GpuOption::kGres;
  if (text == "none") return GpuOption::kNone;
  fail_type(value, "gpu_option", "gpus-per-node, gres or none");
}

int count_of(const Value& value, const std::string& key) {
  auto number = value.integer();
  if (!number || *number < 0 || *number > 1024) fail_type(value, key, "a number from 0 to 1024");
  return static_cast<int>(*number);
}

void read_environment(Profile& profile, const Value& value) {
  if (value.kind == Kind::kNull) return;
  if (value.kind != Kind::kMap) fail_type(value, "environment", "names and values");
  for (size_t i = 0; i < value.items.size(); ++i) {
    const std::string &name = value.names[i], key = "environment." + name;
    std::string text = text_of(value.items[i], key);
    bool good =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; }) &&
        !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
    if (!good || text.find_first_of("\"`\\}\n") != text.npos)
      fail_type(value.items[i], key, "a variable's name with a value without \", `, \\ and }");
    profile.environment.emplace_back(name, text);
  }
}

// Returns false for a key that profiles do not have.
bool read_key(Profile& profile, const std::string& key, const Value& value) {
  if (key == "partition") return profile.partition = text_of(value, key), true;
  if (key == "gpu_option") return profile.gpu_option = gpu_option_of(value), true;
  if (key == "gpus_per_node") return profile.gpus_per_node = count_of(value, key), true;
  if (key == "auto_resume") {
    if (value.kind != Kind::kBool) fail_type(value, key, "true or false");
    profile.auto_resume = value.is_true() ? AutoResume::kWhereInstalled : AutoResume::kNever;
    return true;
  }
  if (key == "write_rate_mb") {
    if (value.number().value_or(0) <= 0) fail_type(value, key, "a positive number of MB/s");
    return profile.write_rate = *value.number(), true;
  }
  if (key == "environment") return read_environment(profile, value), true;
  if (key == "modules") return profile.modules = texts_of(value, key), true;
  if (key == "prologue") return profile.prologue = text_of(value, key), true;
  if (key == "sbatch") return profile.sbatch = texts_of(value, key), true;
  if (key == "notes") return profile.notes = texts_of(value, key), true;
  return false;
}

[[noreturn]] void fail_unknown_key(const std::string& key, const Value& value) {
  static const std::vector<std::string> kKeys = {
      "partition",   "gpu_option", "gpus_per_node", "auto_resume", "write_rate_mb",
      "environment", "modules",    "prologue",      "sbatch",      "notes"};
  std::string near = nearest(key, kKeys);
  fail(Exit::kUsage, value.place.text(), ": a profile has no key '", key, "'",
       did_you_mean(near, "."), " The keys: ", join(kKeys, ", "));
}

}  // namespace

Profile parse_profile(const std::string& text, const std::string& file) {
  Profile profile;
  profile.name = fs::path(file).stem();
  Value root = parse_yaml(text, file);
  check_usage(root.kind == Kind::kMap, file, ": a profile holds keys and values, such as ",
              "partition: gpu");
  for (size_t i = 0; i < root.items.size(); ++i)
    if (!read_key(profile, root.names[i], root.items[i]))
      fail_unknown_key(root.names[i], root.items[i]);
  return profile;
}

Profile load_profile(const std::string& name, const std::vector<fs::path>& directories) {
  if (name.find('/') != name.npos || name.ends_with(".yml"))
    return parse_profile(read_file(name), name);
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::path& directory : directories) {
    fs::path file = directory / (name + ".yml");
    if (fs::exists(file, error)) return parse_profile(read_file(file), file);
    for (const auto& entry : fs::directory_iterator(directory, error))
      names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  check_usage(!directories.empty() && !names.empty(), "--profile ", name,
              ": no profiles are found; they belong in share/neox/profiles beside bin, or give "
              "the path of a file");
  std::string near = nearest(name, names);
  fail(Exit::kUsage, "--profile ", name, ": there is no such profile", did_you_mean(near, "."),
       " There are: ", join(names, ", "), "; or give the path of a file of your own");
}

std::vector<fs::path> profile_directories(const fs::path& bin) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const char* place : {"../share/neox/profiles", "../../../env/profiles"})
    if (fs::is_directory(bin / place, error)) found.push_back((bin / place).lexically_normal());
  return found;
}

}  // namespace neox
