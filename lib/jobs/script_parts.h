// The pieces of bash that job scripts are made of. Each is complete in itself; job_script() chooses
// and orders them.
#pragma once
#include <string>
#include <vector>

#include "jobs/job.h"

namespace neox {

struct Variable {
  std::string name, value;  // value: the default, as bash
  std::string comment;
};

// What stands above the #SBATCH lines, without "# ".
std::vector<std::string> script_comment(JobKind kind);
// The variables that a script takes, in an order in which each may use those before it.
std::vector<Variable> script_variables(JobKind kind);

extern const char* const kHelpers;      // say, die
extern const char* const kEarlySignal;  // keeps a signal that comes before the tasks
extern const char* const kModules;      // looks for the function `module`
extern const char* const kConfigs;      // where MODEL_CONFIG is looked for
extern const char* const kFoundConfig;  // it must be there
extern const char* const kNamedConfig;  // or names a run
extern const char* const kName;         // name of the run, and what follows from it
extern const char* const kStep;         // step=(srun ...) with its options
extern const char* const kTasks;        // why srun is told their number
extern const char* const kTaskCount;    // tasks of a node by --ntasks
extern const char* const kImage;        // adds image and mounts to step
extern const char* const kBuildImage;   // all of build-image

// How step is run, in script_run.cc.
extern const char* const kTimeLimit;    // the job's name for Slurm, NEOX_JOB_END_TIME
extern const char* const kRunOnce;      // runs step
extern const char* const kRunRequeued;  // runs step, forwards signals
extern const char* const kRequeue;      // behind it: requeues

// command=(... of the kind, left open for further arguments.
std::string script_command(JobKind kind);

}  // namespace neox
