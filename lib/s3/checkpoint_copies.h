// Copies of a run's checkpoints in S3: <s3_path>/<name of the save directory>/global_step<N>, file
// by file, as GPT-NeoX has them. COMPLETE is written last, so that a copy that has it is whole.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/tasks.h"
#include "s3/s3_directory.h"

namespace neox {

// The place of the run that saves in `save`. s3_path may end with options: ?region=eu-west-1
std::string s3_place(const std::string& s3_path, const std::filesystem::path& save);

// The steps of the copies that are there, ascending.
std::vector<int64_t> list_copies(S3Directory& place);

// Fetches a copy into the run directory, where it is a checkpoint like others then. Nothing stands
// under its name before it is whole. life: part of the temporary name. Throws Error (74), also
// where it is not what was saved, and what poll() throws.
void fetch_copy(S3Directory& place, int64_t step, const std::filesystem::path& run_dir,
                const std::string& life, const Poll& poll);

// A thread that copies what it is given. One thread calls these, but for needs().
class CheckpointCopies {
 public:
  // Writes writer.txt, so that a place that cannot be written is told now: Error (74).
  CheckpointCopies(S3Directory& place, const std::string& writer);
  CheckpointCopies(const CheckpointCopies&) = delete;
  CheckpointCopies& operator=(const CheckpointCopies&) = delete;
  // Gives up what is not copied yet, and says so.
  ~CheckpointCopies();

  // A complete checkpoint, to be copied behind those of earlier steps. What fails is logged; what
  // is there already is left as it is.
  void add(const std::filesystem::path& checkpoint);
  // Whether that step is still to be copied, and must not be removed. From any thread.
  bool needs(int64_t step) const;
  // Tries those that have failed once more, and waits until all is copied. Throws Error (74) where
  // one is not, and what poll() throws.
  void finish(const Poll& poll);

 private:
  void work();
  std::optional<std::filesystem::path> next();  // waits; nothing: the end
  // What failed; "" where nothing did.
  std::string copy_logged(const std::filesystem::path& checkpoint);
  void copy_files(const std::filesystem::path& checkpoint);
  void wait_for_all(const Poll& poll);

  S3Directory& place_;
  std::atomic<int64_t> given_bytes_ = 0, copied_bytes_ = 0;
  bool warned_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int64_t, std::filesystem::path> waiting_, failed_;  // by step; the first one is at work
  std::string why_failed_;                                     // the last one
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace neox
