#include "fault_preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace {

struct Fault {
  std::string dir;
  int error = 0;
  int64_t bytes = -1, calls = -1, seen = 0, delay = -1;
};

int64_t number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : -1;
}

Fault& fault() {
  static Fault fault = [] {
    const char* dir = std::getenv("NEOX_FAULT_DIR");
    if (!dir) return Fault{};
    return Fault{dir,
                 static_cast<int>(number("NEOX_FAULT_ERRNO")),
                 number("NEOX_FAULT_BYTES"),
                 number("NEOX_FAULT_CALLS"),
                 0,
                 number("NEOX_FAULT_DELAY")};
  }();
  return fault;
}

std::atomic<int> exchange_error = 0;
std::atomic<int> direct_refused = 0;
std::atomic<int64_t> direct_writes = 0;
std::atomic<int64_t> more_threads = -1;

struct Closed {
  std::string path;
  int error = 0;
};
Closed& closed() {
  static Closed closed;
  return closed;
}
Closed& unread() {
  static Closed unread;
  return unread;
}

std::mutex& mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string path_of(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = ::readlink(link, path, sizeof path);
  return std::string(path, n > 0 ? static_cast<size_t>(n) : 0);
}

std::string path_at(int dir, const char* path) {
  return path[0] == '/' || dir == AT_FDCWD ? path : path_of(dir) + "/" + path;
}

// Files and directories by their inodes, which renames leave as they are.
struct Watch {
  std::string dir;
  std::set<ino_t> written, entered, renamed_in;
  int64_t too_early = 0;
  bool has(const std::string& path) const { return !dir.empty() && path.starts_with(dir); }
};
Watch& watch() {
  static Watch watch;
  return watch;
}

ino_t inode(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

ino_t directory_of(const std::string& path) { return inode(path.substr(0, path.rfind('/'))); }

void note_written(int fd) {
  struct stat info {};
  std::lock_guard lock(mutex());
  if (watch().has(path_of(fd)) && ::fstat(fd, &info) == 0) watch().written.insert(info.st_ino);
}

void note_entry(const std::string& path) {
  std::lock_guard lock(mutex());
  if (watch().has(path)) watch().entered.insert(directory_of(path));
}

void note_flushed(int fd) {
  struct stat info {};
  std::lock_guard lock(mutex());
  if (::fstat(fd, &info) != 0) return;
  for (auto* set : {&watch().written, &watch().entered, &watch().renamed_in})
    set->erase(info.st_ino);
}

// Before a rename. A directory is to hold its entries by then.
void note_rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex());
  Watch& w = watch();
  if (!w.has(to)) return;
  w.too_early += !w.written.empty() || w.entered.contains(inode(from));
  w.renamed_in.insert(directory_of(to));
}

bool fails() {
  if (fault().error == kFaultKill) ::kill(::getpid(), SIGKILL);
  errno = fault().error;
  return true;
}

// How many of `bytes` bytes may be written; -1: the call fails, and errno is set.
int64_t allowed(const std::string& path, int64_t bytes) {
  std::lock_guard lock(mutex());
  Fault& f = fault();
  if (f.dir.empty() || !path.starts_with(f.dir)) return bytes;
  ++f.seen;
  if (f.delay > 0) ::usleep(static_cast<useconds_t>(f.delay * 1000));
  if (f.calls == 0) return fails(), -1;
  if (f.calls > 0) --f.calls;
  if (f.bytes < 0 || bytes == 0) return bytes;
  if (f.bytes == 0) return fails(), -1;
  int64_t may = bytes < f.bytes ? bytes : f.bytes;
  f.bytes -= may;
  return may;
}

bool refused(const std::string& path) { return allowed(path, 0) < 0; }

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

int open_or_fail(const char* name, const char* path, int flags, mode_t mode) {
  static auto* call = real<int(const char*, int, ...)>(name);
  if ((flags & O_CREAT) && refused(path)) return -1;
  if (!(flags & O_CREAT) && closed().error && closed().path == path)
    return errno = closed().error, -1;
  if ((flags & O_DIRECT) && direct_refused == kFaultDirectOpen) return errno = EINVAL, -1;
  if (flags & O_CREAT) note_entry(path);
  return call(path, flags, mode);
}

mode_t mode_of(int flags, va_list args) { return flags & O_CREAT ? va_arg(args, mode_t) : 0; }

}  // namespace

extern "C" {

void neox_fault(const char* dir, int error, int64_t bytes, int64_t calls) {
  std::lock_guard lock(mutex());
  fault() = {dir, error, bytes, calls, 0, -1};
}

void neox_fault_exchange(int error) { exchange_error = error; }

void neox_fault_open(const char* path, int error) { closed() = {path, error}; }

void neox_fault_read(const char* path, int error) { unread() = {path, error}; }

void neox_fault_direct(int refused) {
  direct_refused = refused;
  direct_writes = 0;
}

int64_t neox_fault_direct_writes() { return direct_writes; }

void neox_fault_threads(int64_t more) { more_threads = more; }

int64_t neox_fault_calls() {
  std::lock_guard lock(mutex());
  return fault().seen;
}

void neox_fault_watch(const char* dir) {
  std::lock_guard lock(mutex());
  watch() = {dir, {}, {}, {}, 0};
}

int64_t neox_fault_unflushed() {
  std::lock_guard lock(mutex());
  return watch().too_early + static_cast<int64_t>(watch().renamed_in.size());
}

ssize_t write(int fd, const void* data, size_t n) {
  static auto* call = real<ssize_t(int, const void*, size_t)>("write");
  int64_t may = fd > 2 ? allowed(path_of(fd), static_cast<int64_t>(n)) : static_cast<int64_t>(n);
  if (fd > 2) note_written(fd);
  return may < 0 ? -1 : call(fd, data, static_cast<size_t>(may));
}

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  static auto* call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (::fcntl(fd, F_GETFL) & O_DIRECT) {
    if (direct_refused == kFaultDirectWrite) return errno = EINVAL, -1;
    ++direct_writes;
  }
  int64_t may = allowed(path_of(fd), static_cast<int64_t>(n));
  note_written(fd);
  return may < 0 ? -1 : call(fd, data, static_cast<size_t>(may), offset);
}

ssize_t pread(int fd, void* data, size_t n, off_t offset) {
  static auto* call = real<ssize_t(int, void*, size_t, off_t)>("pread");
  if (unread().error && unread().path == path_of(fd)) return errno = unread().error, -1;
  return call(fd, data, n, offset);
}

ssize_t copy_file_range(int from, off64_t* in, int fd, off64_t* out, size_t n, unsigned flags) {
  static auto* call =
      real<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)>("copy_file_range");
  int64_t may = allowed(path_of(fd), static_cast<int64_t>(n));
  note_written(fd);
  return may < 0 ? -1 : call(from, in, fd, out, static_cast<size_t>(may), flags);
}

ssize_t pwrite64(int fd, const void* data, size_t n, off64_t offset) {
  return pwrite(fd, data, n, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t n) noexcept {
  static auto* call = real<int(int, int, off_t, off_t)>("fallocate");
  std::string path = path_of(fd);
  {
    std::lock_guard lock(mutex());
    Fault& f = fault();
    bool here = !f.dir.empty() && path.starts_with(f.dir);
    if (here && f.bytes >= 0 && n > f.bytes) return fails(), -1;
  }
  return refused(path) ? -1 : call(fd, mode, offset, n);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t n) noexcept {
  return fallocate(fd, mode, offset, n);
}

int posix_fallocate(int fd, off_t offset, off_t n) {
  static auto* call = real<int(int, off_t, off_t)>("posix_fallocate");
  return refused(path_of(fd)) ? errno : call(fd, offset, n);
}

int ftruncate(int fd, off_t n) noexcept {
  static auto* call = real<int(int, off_t)>("ftruncate");
  note_written(fd);
  return refused(path_of(fd)) ? -1 : call(fd, n);
}

int ftruncate64(int fd, off64_t n) noexcept { return ftruncate(fd, n); }

int fsync(int fd) {
  static auto* call = real<int(int)>("fsync");
  note_flushed(fd);
  return refused(path_of(fd)) ? -1 : call(fd);
}

int rename(const char* from, const char* to) noexcept {
  static auto* call = real<int(const char*, const char*)>("rename");
  note_rename(from, to);
  return refused(to) ? -1 : call(from, to);
}

int flock(int fd, int operation) noexcept {
  static auto* call = real<int(int, int)>("flock");
  static const int64_t error = number("NEOX_FAULT_LOCKS");
  if (error > 0) return errno = static_cast<int>(error), -1;
  return call(fd, operation);
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  static auto* call = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (flags && exchange_error) return errno = exchange_error, -1;
  note_rename(path_at(from_dir, from), path_at(to_dir, to));
  return refused(path_at(to_dir, to)) ? -1 : call(from_dir, from, to_dir, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* call = real<int(const char*, mode_t)>("mkdir");
  return refused(path) ? -1 : call(path, mode);
}

int unlinkat(int dir, const char* path, int flags) noexcept {
  static auto* call = real<int(int, const char*, int)>("unlinkat");
  return refused(path_at(dir, path)) ? -1 : call(dir, path, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  static auto* call =
      real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (more_threads == 0) return EAGAIN;
  if (more_threads > 0) --more_threads;
  return call(thread, attributes, run, argument);
}

int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  mode_t mode = mode_of(flags, args);
  va_end(args);
  return open_or_fail("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  mode_t mode = mode_of(flags, args);
  va_end(args);
  return open_or_fail("open64", path, flags, mode);
}

// What <fcntl.h> makes of open() where _FORTIFY_SOURCE is the compiler's default, as on Ubuntu.
int __open_2(const char* path, int flags) { return open_or_fail("open", path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_or_fail("open64", path, flags, 0); }
}
