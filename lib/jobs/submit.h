// Hands job scripts to Slurm: sbatch as a child process.
#pragma once
#include <ostream>
#include <vector>

#include "jobs/job.h"
#include "jobs/profile.h"

namespace neox {

// Submits the jobs, each after the success of the one before it, and says their ids and what to
// look at. Logs go to logs/ of the working directory, and so do copies of the scripts. Throws Error
// (74) where sbatch is absent or refuses; what was submitted before stays, and is named.
void submit_jobs(std::vector<SlurmJob> jobs, const Profile& profile, std::ostream& out);

}  // namespace neox
