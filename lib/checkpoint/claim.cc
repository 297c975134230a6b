// Which life of which job may save in a run directory: its name stands in the file `owner`, which
// is locked as long as that life's rank 0 lives.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace neox {
namespace {

// "JOB.STEP.RESTART" of a Slurm job, another restart of the same one: its processes of before may
// be left on a node that Slurm has lost.
bool is_restart_of(std::string_view life, std::string_view before) {
  size_t job = life.find('.'), restart = life.rfind('.');
  if (job == life.npos || restart == job) return false;
  return before.starts_with(life.substr(0, job + 1)) &&
         before.substr(before.rfind('.')) != life.substr(restart);
}

std::string owner_of(const fs::path& run_dir) {
  fs::path path = run_dir / kClaimFile;
  return is_there(path) ? read_file(path) : "";
}

}  // namespace

RunClaim::RunClaim(const fs::path& run_dir, const std::string& life) {
  make_directories(run_dir);
  fs::path path = run_dir / kClaimFile;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  check_io(file_ >= 0, "cannot open ", path.string(), ": ", describe_errno(errno));
  bool held = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  std::string owner = owner_of(run_dir);
  bool written = false;
  if (!held || is_restart_of(life, owner))
    written = ::ftruncate(file_, 0) == 0 &&
              ::pwrite(file_, life.data(), life.size(), 0) == static_cast<ssize_t>(life.size()) &&
              ::fsync(file_) == 0;
  int error = errno;
  if (!written) ::close(file_);
  check_usage(!held || written, run_dir.string(), " is in use: the run ", owner,
              " is saving there. Stop that one first, or give this one another save directory; "
              "where it is certainly dead, on a node that was lost, remove ",
              path.string());
  check_io(written, "cannot write ", path.string(), ": ", describe_errno(error));
}

RunClaim::~RunClaim() {
  if (file_ >= 0) ::close(file_);
}

void check_claim(const fs::path& run_dir, const std::string& life) {
  std::string owner = owner_of(run_dir);
  if (owner.empty() || owner == life) return;
  fail(Exit::kUsage, run_dir.string(), " was taken over by a later run (", owner, "); this one (",
       life, ") saves nothing more there. Let one run at a time save there, or ",
       "give this one another save directory");
}

bool sees_claim(const fs::path& run_dir, const std::string& life, std::chrono::seconds patience) {
  auto until = std::chrono::steady_clock::now() + patience;
  while (owner_of(run_dir) != life) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return true;
}

}  // namespace neox
