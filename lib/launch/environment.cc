#include "launch/environment.h"

#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

namespace neox {

Environment environment() {
  Environment env;
  for (char** entry = ::environ; *entry; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string::npos) env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return env;
}

std::string variable(const Environment& env, const std::string& name) {
  auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

int number_variable(const Environment& env, const std::string& name, int low, int high) {
  std::string text = variable(env, name);
  auto value = number_of<int>(text);
  check_usage(value && *value >= low && *value <= high, "the environment says ", name, "=", text,
              ", which is not a number from ", low, " to ", high);
  return *value;
}

bool gpus_hidden(const Environment& env) {
  auto found = env.find("CUDA_VISIBLE_DEVICES");
  return found != env.end() &&
         (found->second.empty() || found->second == "-1" || found->second == "NoDevFiles");
}

std::string gpus_allotted(const Environment& env) {
  if (gpus_hidden(env)) return "";
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    // An exclusive job has all GPUs of its nodes, a step only those that it asks for.
    if (env.contains("SLURM_STEP_ID") && std::string_view(name) == "SLURM_JOB_GPUS") continue;
    std::string value = variable(env, name);
    if (!value.empty()) return concat(name, "=", value);
  }
  return "";
}

}  // namespace neox
