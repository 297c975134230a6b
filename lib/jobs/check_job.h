// Does the configuration fit the allocation that a training job asks for? By arithmetic and by
// looking at files; nothing is started.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "jobs/job.h"

namespace neox {

struct CheckOptions {
  // What is missing is refused, or noted, or an earlier job makes it.
  enum class Files { kMustExist, kMayBeMissing, kPreparedBefore };
  Files files = Files::kMustExist;
  std::vector<std::string> made = {};  // what the jobs before this one make
  std::string mounts;                // FROM:TO,...; paths of the config are those in the container
  double write_rate = 300;           // MB/s, of a save
  std::optional<double> gpu_memory;  // GB; without: of the GPU's type, where that is known
  std::optional<int> lead_seconds;   // as asked for
  int64_t entries = 0;               // of the vocabulary, where padded_vocab_size is not given
};

struct CheckedJob {
  int lead_seconds = 0;  // for the save, between SIGUSR1 and the end
  std::vector<std::string> notes;
};

// Throws Error (64) with the numbers and what would mend it: tasks and GPUs, layout, batch, memory
// of a GPU, files, time limit. With a range of nodes both ends must fit.
CheckedJob check_job(const SlurmJob& job, const Config& config, const CheckOptions& options);

// What a rank may take of its GPU's memory, in bytes, where it is known.
std::optional<double> room_of(const SlurmJob& job, const CheckOptions& options);

// Seconds of "90", "90:00", "1:30:00", "2-12", "2-12:30", "2-12:30:00" (minutes alone, as in
// Slurm); 0, which is no limit, of UNLIMITED and INFINITE; nothing for what is no time.
std::optional<int64_t> parse_slurm_time(const std::string& text);

}  // namespace neox
