#include "launch/environment.h"

#include <unistd.h>

namespace neox {
namespace {

std::string value_or(const Environment& env, const std::string& name,
                     const std::string& otherwise) {
  auto found = env.find(name);
  return found == env.end() || found->second.empty() ? otherwise : found->second;
}

}  // namespace

Environment environment() {
  Environment env;
  for (char** entry = ::environ; *entry; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string::npos) env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return env;
}

std::string gpus_allotted(const Environment& env) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    std::string value = value_or(env, name, "");
    if (!value.empty() && value != "-1" && value != "NoDevFiles")
      return std::string(name) + "=" + value;
  }
  return "";
}

std::string life_of_job(const Environment& env) {
  std::string job = value_or(env, "SLURM_JOB_ID", "");
  if (job.empty()) return std::to_string(::getpid());
  return job + "." + value_or(env, "SLURM_STEP_ID", "0") + "." +
         value_or(env, "SLURM_RESTART_COUNT", "0");
}

}  // namespace neox
