// What kind of cluster a job is for: a file of env/profiles, or the user's own copy of one.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace neox {

enum class GpuOption { kGpusPerNode, kGres, kNone };
enum class AutoResume { kNever, kWhereInstalled };

struct Profile {
  std::string name;
  std::string partition;  // empty: Slurm's default
  GpuOption gpu_option = GpuOption::kGpusPerNode;
  int gpus_per_node = 8;
  AutoResume auto_resume = AutoResume::kNever;  // srun --auto-resume=1 of SageMaker HyperPod
  double write_rate = 300;  // MB/s of the shared file system, all nodes together
  std::vector<std::pair<std::string, std::string>> environment;  // set where unset
  std::vector<std::string> modules;                              // module load
  std::string prologue;                                          // lines of bash
  std::vector<std::string> sbatch;                               // "--mem=0": further lines
  std::vector<std::string> notes;                                // for who submits
};

// Reads the text of a profile. Throws Error (64) with file:line and the nearest key.
Profile parse_profile(const std::string& text, const std::string& file);

// `name` is a profile in one of the directories, or the path of a file. Throws Error (64) naming
// the profiles that there are.
Profile load_profile(const std::string& name,
                     const std::vector<std::filesystem::path>& directories);

// Where profiles lie for a program in `bin`: installed, or in the source tree of a build.
std::vector<std::filesystem::path> profile_directories(const std::filesystem::path& bin);

}  // namespace neox
