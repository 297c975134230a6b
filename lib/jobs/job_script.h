// The sbatch script of a job: a pure function of the job and the kind of cluster. Files sbatch/*
// are what it gives for default jobs.
#pragma once
#include <string>
#include <vector>

#include "jobs/job.h"
#include "jobs/profile.h"

namespace neox {

std::string job_script(const SlurmJob& job, const Profile& profile);

// Of the script's options of sbatch those that were asked for or checked. A variable such as
// SBATCH_TIMELIMIT overrides what a script says, and is overridden by sbatch's command line.
std::vector<std::string> decided_options(const SlurmJob& job, const Profile& profile);

// Whether an option makes the job an array, each of whose elements has a log of its own.
bool is_array(const SlurmJob& job, const Profile& profile);
// The name of the log as Slurm takes it: "%x_%j.out".
std::string log_name(const SlurmJob& job, const Profile& profile);

// A word of bash: plain where that is safe, else in single quotes.
std::string shell_quote(const std::string& text);

}  // namespace neox
