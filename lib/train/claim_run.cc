#include "train/claim_run.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/estimate.h"
#include "launch/process_info.h"

namespace neox {
namespace {

// The magic number of the file system that holds the path or will; 0 where it is not told.
int64_t file_system(const fs::path& path) {
  struct statfs found {};
  return ::statfs(existing_part(path).c_str(), &found) == 0 ? static_cast<int64_t>(found.f_type)
                                                            : 0;
}

// What nodes write is seen by others at once, but for file systems with caches that expire.
std::chrono::seconds lateness(const fs::path& path) {
  constexpr int64_t kFuse = 0x65735546, kCifs = 0xff534d42;
  int64_t kind = file_system(path);
  bool cached = kind == NFS_SUPER_MAGIC || kind == kFuse || kind == kCifs;
  return std::chrono::seconds(cached ? 65 : 5);
}

void warn_of_passing_files(const Config& config) {
  const fs::path& save = config.checkpoint.save;
  int64_t kind = file_system(save);
  const char* why = kind == OVERLAYFS_SUPER_MAGIC ? "the container's own files, which go with it"
                    : kind == TMPFS_MAGIC         ? "memory (tmpfs)"
                                                  : nullptr;
  if (why)
    log_warning(config.where("save"), ": save names ", save.string(), ", which lies in ", why,
                ": checkpoints that are to last need other storage");
}

// A run that goes on has part of its checkpoints there already.
void warn_of_little_room(const Config& config, int64_t ranks, const Start& start) {
  bool resumes = start.checkpoint.has_value();
  Estimate e = estimate(config, config.model.vocab, ranks, free_bytes(config.checkpoint.save),
                        FrozenBatch{start.state.global_batch, start.state.micro_batch});
  int64_t needed = resumes ? e.checkpoint_bytes : e.disk_bytes;
  if (needed <= *e.free_bytes) return;
  auto shown = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  log_warning(config.where("save"), ": a checkpoint takes ", shown(e.checkpoint_bytes),
              resumes ? "" : concat(", those of the run at most ", shown(e.disk_bytes)), ", and ",
              config.checkpoint.save.string(), " has ", shown(*e.free_bytes),
              " free: ", room_advice(config, e));
}

// A run that ended between the look at what is there and the claim may have saved more.
void check_nothing_newer(const Start& start, const fs::path& save) {
  std::string latest = latest_in(save);
  if (latest != start.latest)
    fail(Exit::kRequeue, "another run has saved ", latest, " into ", save.string(),
         " while this one began from ", start.latest.empty() ? "nothing" : start.latest,
         "; start again to go on from there");
}

}  // namespace

void check_goes_on(const Config& config, const RunPlace& place) {
  const CheckpointConfig& c = config.checkpoint;
  check_usage(place.failures_file.empty() || c.save.empty() || !c.load.empty(),
              config.where("save"), ": save is ", c.save.string(),
              ", but load is not set, so a requeued job would not go on from its checkpoint; add "
              "load: ",
              c.save.string());
}

std::optional<RunClaim> claim_run(const Config& config, const Start& start, const RunPlace& place,
                                  Control& control) {
  const fs::path& save = config.checkpoint.save;
  std::optional<RunClaim> claim;
  if (save.empty()) {
    if (control.rank() == 0) log_warning("save is not set, so nothing of this run will be kept");
    return claim;
  }
  if (control.rank() == 0) {
    claim.emplace(save, place.life);
    check_nothing_newer(start, save);
    warn_of_passing_files(config);
    warn_of_little_room(config, control.size(), start);
  }
  control.gather("", kMostReading);  // slow storage may take as long to remove
  bool sees = sees_claim(save, place.life, lateness(save));
  std::string blind;
  for (const std::string& host : control.gather(sees ? "" : host_name()))
    if (!host.empty() && blind.find(host) == blind.npos)
      blind += (blind.empty() ? "" : ", ") + host;
  check_usage(blind.empty(), config.where("save"), ": save names ", save.string(),
              ", where ranks on ", blind,
              " do not see what rank 0 has written: all nodes need the ",
              "same storage there, in a container under the same path (CONTAINER_MOUNT)");
  return claim;
}

}  // namespace neox
