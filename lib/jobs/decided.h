// What is decided when a job is submitted: the values of its script's variables, its image, its
// programs.
#pragma once
#include <string>
#include <vector>

#include "base/program.h"
#include "jobs/job.h"
#include "jobs/request.h"

namespace neox {

// A file by its absolute path: pyxis would ask a registry for another.
std::string image_of(const Program& program, const Environment& env);

// What build-image writes, and the other jobs run in. Throws Error (64) where that is no file.
std::string image_to_build(const Program& program, const Environment& env);

// An image that is a file must be there, unless a job before this one builds it; names of a
// registry are left to the cluster.
void check_image(const Program& program, const std::vector<JobKind>& kinds, const Environment& env,
                 SubmitRequest& request);

// The script says itself what was checked: nothing is left to the environment of the job. Values
// that the job has already stay.
void decide(SlurmJob& job, const Program& program, const std::vector<std::string>& configs,
            const Surroundings& here);

// The directory of the programs, where no image has them: those in PATH, which a job may not get
// from where it is submitted, or else those beside neox-submit.
std::string programs_to_add(const SlurmJob& job, const Surroundings& here);

// Of the files that the job prepare-data writes.
std::string prepared_prefix(const JobValues& values);
std::vector<std::string> made_by(const SlurmJob& job);

}  // namespace neox
