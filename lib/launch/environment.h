// What the environment of the process says. The only place that reads environment variables.
#pragma once
#include <map>
#include <string>

namespace neox {

using Environment = std::map<std::string, std::string>;

Environment environment();

// The variable's value, or "" where it is not set.
std::string variable(const Environment& env, const std::string& name);

// The variable as a number from low to high; throws (64) where it is not one.
int number_variable(const Environment& env, const std::string& name, int low, int high);

// CUDA_VISIBLE_DEVICES may hide all GPUs, to compute on the CPU.
bool gpus_hidden(const Environment& env);

// Were GPUs allotted to this process (by Slurm, or by hand through CUDA_VISIBLE_DEVICES)? Returns
// the variable that says so, as NAME=value, or "".
std::string gpus_allotted(const Environment& env);

}  // namespace neox
