// What the command line says of a job to Slurm. All throw Error (64).
#pragma once
#include <string>
#include <vector>

#include "base/program.h"
#include "jobs/job.h"
#include "jobs/profile.h"

namespace neox {

// A word of an #SBATCH line: a space or a # would end it. "" where the option is not given.
std::string word(const Program& program, const std::string& option);
int positive(const std::string& text, const std::string& option, int least = 1);
// "8", "h100:8", "0".
GpuRequest read_gpus(const std::string& text);

// Nodes, GPUs and tasks, where they are given.
void read_size(const Program& program, SlurmJob& job);
// All else, and the options behind "--". Those of the profile are looked at as those are; its time
// limit holds where the command line has none.
void read_slurm(const Program& program, const std::vector<std::string>& sbatch,
                const Profile& profile, SlurmJob& job);

}  // namespace neox
