#include "jobs/decided.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "jobs/container.h"
#include "jobs/job_script.h"
#include "jobs/script_parts.h"

namespace neox {
namespace {

namespace fs = std::filesystem;

// "$FSX_PATH/data" with the values so far.
std::string expand(std::string text, const JobValues& values) {
  for (const auto& [name, value] : values)
    for (size_t at = 0; (at = text.find("$" + name, at)) != text.npos; at += value.size())
      text.replace(at, name.size() + 1, value);
  return text;
}

// What the variables of a script are in this environment.
JobValues decided_values(JobKind kind, const Environment& env) {
  JobValues values;
  for (const auto& [name, fallback, comment] : script_variables(kind)) {
    std::string given = variable(env, name);
    values[name] = given.empty() ? expand(fallback, values) : given;
  }
  return values;
}

}  // namespace

std::string image_of(const Program& program, const Environment& env) {
  std::string image;
  for (const char* name : {"ENROOT_IMAGE", "IMAGE"})
    if (auto found = env.find(name); found != env.end()) image = found->second;
  if (auto given = program.given<std::string>("container")) image = *given;
  return is_image_file(image) ? fs::absolute(image).lexically_normal().string() : image;
}

std::string image_to_build(const Program& program, const Environment& env) {
  std::string image = image_of(program, env);
  if (image.empty()) image = decided_values(JobKind::kBuildImage, env).at("ENROOT_IMAGE");
  check_usage(is_image_file(image), "build-image writes a file, and ", image,
              program.has("container") ? " (--container)" : " (IMAGE or ENROOT_IMAGE)",
              " is none; give a path such as /fsx/apps/neox.sqsh");
  return image;
}

void decide(SlurmJob& job, const Program& program, const std::vector<std::string>& configs,
            const Surroundings& here) {
  JobValues decided = decided_values(job.kind, here.environment);
  if (decided.contains("MODEL_CONFIG")) {
    decided["MODEL_CONFIG"] = configs[0];
    std::string given = variable(here.environment, "CHECKPOINT_PATH");
    std::string name = fs::path(configs[0]).stem();
    decided["CHECKPOINT_PATH"] =
        given.empty() ? concat(decided["MODEL_PATH"], "/", name, "_checkpoints") : given;
  }
  if (job.kind != JobKind::kBuildImage) decided["IMAGE"] = image_of(program, here.environment);
  decided.merge(job.values);
  for (const auto& [name, value] : decided) job.values.emplace(name, value);
}

void check_image(const Program& program, const std::vector<JobKind>& kinds, const Environment& env,
                 SubmitRequest& request) {
  if (std::ranges::count(kinds, JobKind::kBuildImage) > 0) return;
  std::string image = image_of(program, env);
  std::error_code error;
  if (!is_image_file(image) || fs::exists(image, error)) return;
  std::string text =
      concat(program.has("container") ? "--container " : "IMAGE or ENROOT_IMAGE ", image,
             ": there is no such file; neox-submit build-image makes the image");
  check_usage(!program.has("submit"), text);
  request.notes.push_back(text);
}

std::string programs_to_add(const SlurmJob& job, const Surroundings& here) {
  auto image = job.values.find("IMAGE");
  if (image == job.values.end() || !image->second.empty()) return "";
  std::error_code error;
  for (const std::string& place : split(variable(here.environment, "PATH"), ':'))
    if (!place.empty() && fs::exists(fs::path(place) / "neox-train", error))
      return fs::absolute(place).lexically_normal();
  return fs::exists(here.programs / "neox-train", error) ? here.programs.string() : "";
}

std::string prepared_prefix(const JobValues& v) {
  const std::string& name = v.at("DATASET");
  return concat(v.at("DATA_PATH"), "/", name, "/", name, "_text_document");
}

std::vector<std::string> made_by(const SlurmJob& job) {
  std::string prefix = prepared_prefix(job.values);
  return {prefix, prefix + ".bin", prefix + ".idx", job.values.at("VOCAB_FILE")};
}

}  // namespace neox
