// What the environment of the process says. The only place that reads environment variables.
#pragma once
#include <map>
#include <string>

namespace neox {

using Environment = std::map<std::string, std::string>;

Environment environment();

// Were GPUs allotted to this process (by Slurm, or by hand through CUDA_VISIBLE_DEVICES)? Returns
// the variable that says so, as NAME=value, or "".
std::string gpus_allotted(const Environment& env);

// Names this life of the job in temporary files: job, step and restart count under Slurm, else the
// process id.
std::string life_of_job(const Environment& env);

}  // namespace neox
