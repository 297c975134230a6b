// Which life of which job may save in a run directory: its name stands in the file `owner`, which
// is locked as long as that life's rank 0 lives.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace neox {
namespace {

bool are_numbers(const std::string& a, const std::string& b) {
  return number_of<uint64_t>(a) && number_of<uint64_t>(b);
}

// "JOB.START.RESTART" of a Slurm job, and another start of the same one: its processes of before
// may be left on a node that Slurm has lost. Where Slurm has not restarted the job, START has to be
// another step, or torchrun's next count: a second "7.node-99.0" is a run beside the first.
bool is_restart_of(const std::string& life, const std::string& before) {
  std::vector<std::string> now = split(life, '.'), then = split(before, '.');
  bool same_job = now.size() > 2 && now[0] == then[0] && are_numbers(now[0], now.back());
  if (!same_job || life == before) return false;
  if (number_of<uint64_t>(now.back()) > number_of<uint64_t>(then.back())) return true;
  return std::ranges::equal(now, then, [](const std::string& a, const std::string& b) {
    return a == b || are_numbers(a, b);
  });
}

bool is_locked_by_another(int file) {
  return ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// The file, locked where the file system has locks; -1 where another run holds it. One that another
// user has written, or that a lost process of this job still holds, gives way to a new one.
int lock_owner(const fs::path& path, const std::string& life) {
  for (int tries = 0;; ++tries) {
    int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool foreign = file < 0 && (errno == EACCES || errno == EPERM) && tries == 0;
    int error = errno;
    if (foreign) file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check_io(file >= 0, "cannot open ", path.string(), ": ", describe_errno(error));
    bool held = is_locked_by_another(file);
    if (held && !is_restart_of(life, owner_of(path.parent_path()))) return ::close(file), -1;
    if (!held && !foreign && is_same_file(file, path)) return file;
    if (held || foreign) ::unlink(path.c_str());
    ::close(file);
  }
}

}  // namespace

// Without a mapping, whose file another start may cut short.
std::string owner_of(const fs::path& run_dir) {
  fs::path path = run_dir / kClaimFile;
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return "";
  std::array<char, 256> text{};
  ssize_t n = file < 0 ? -1 : ::read(file, text.data(), text.size());
  int error = errno;
  if (file >= 0) ::close(file);
  check_io(n >= 0, "cannot read ", path.string(), ": ", describe_errno(error));
  return {text.data(), static_cast<size_t>(n)};
}

RunClaim::RunClaim(const fs::path& run_dir, const std::string& life) {
  make_directories(run_dir);
  fs::path path = run_dir / kClaimFile;
  file_ = lock_owner(path, life);
  check_usage(file_ >= 0, run_dir.string(), " is in use: the run ", owner_of(run_dir),
              " is saving there. Stop that one first, or give this one another save directory; "
              "where it is certainly dead, on a node that was lost, remove ",
              path.string());
  bool written =
      ::ftruncate(file_, 0) == 0 &&
      ::pwrite(file_, life.data(), life.size(), 0) == static_cast<ssize_t>(life.size()) &&
      ::fsync(file_) == 0;
  int error = errno;
  if (!written) ::close(file_);
  check_io(written, "cannot write ", path.string(), ": ", describe_errno(error));
  remove_leftovers(run_dir, life);
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
