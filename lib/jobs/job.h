// A Slurm job of one of the programs, as data: what job_script() renders.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace neox {

enum class JobKind { kBuildImage, kPrepareData, kTrain, kConvert, kGenerate };

// By its script: started again, it goes on where it was.
bool is_requeued(JobKind kind);

// "train", and back; parse_job_kind gives nothing for other words.
std::string name_of(JobKind kind);
std::vector<std::string> job_names();  // of all
std::optional<JobKind> parse_job_kind(const std::string& word);

// "0.build-image.sbatch": the name of the script among those that are installed.
std::string file_name(JobKind kind);

struct NodeRange {
  int min = 1, max = 1;  // differ: the job starts on any number between them
};

struct GpuRequest {
  std::string type;  // of GRES, such as h100; empty: any
  int per_node = 0;  // 0: a job on CPUs
};

// Values that Slurm takes as they are; empty: not said.
struct SlurmOptions {
  std::string account, partition, qos, constraint, reservation, nice, time;
  std::string after;               // a job id: starts when that has succeeded
  std::vector<std::string> extra;  // "--mem=0": further lines
};

using JobValues = std::map<std::string, std::string>;  // of variables of a script

struct SlurmJob {
  JobKind kind = JobKind::kTrain;
  std::string name;  // empty: "neox-train" and the like
  NodeRange nodes;
  int tasks_per_node = 1;
  GpuRequest gpus;
  SlurmOptions slurm;
  int lead_seconds = 180;              // between SIGUSR1 and the end of the allocation
  std::string mpi;                     // of srun --mpi; empty: pmix, where it is needed
  JobValues values;                    // variables of the script that are decided already
  std::vector<std::string> configs;    // further ones, behind MODEL_CONFIG
  std::vector<std::string> arguments;  // of the program
  std::string programs;                // a directory for the front of PATH
  std::vector<std::string> paths;      // that its configurations name
};

// Ranks that each task of it is: the N of neox-train's --spawn N among its arguments, else 1.
int ranks_per_task(const SlurmJob& job);

inline int ranks_per_node(const SlurmJob& job) { return job.tasks_per_node * ranks_per_task(job); }

// The job that `neox-submit <kind>` gives without options, on nodes of so many GPUs.
SlurmJob default_job(JobKind kind, int gpus_per_node);

}  // namespace neox
