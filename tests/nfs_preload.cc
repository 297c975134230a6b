// Preloaded (LD_PRELOAD), it makes of a process a node with a page cache of its own for the files
// that the ranks of a job write together, as a client of NFS has it in Linux (fs/nfs/file.c:
// nfs_write_begin, fs/nfs/write.c: nfs_update_folio). A page that is written to is filled up, and
// goes to the server whole, as far as this node knows the file to reach; but of a file opened with
// O_DSYNC at once, and only the bytes that were written.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

constexpr off_t kPage = 4096;

struct Page {
  std::string bytes = std::string(kPage, '\0');
  off_t dirty = 0;  // so many of its bytes
};

struct Inode {
  off_t size = 0;  // as far as this node knows
  std::map<off_t, Page> pages;
};

std::mutex mutex;

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}
auto* const write_through = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
auto* const read_through = real<ssize_t(int, void*, size_t, off_t)>("pread");
auto* const sync_through = real<int(int)>("fsync");

struct stat stat_of(int fd) {
  struct stat about = {};
  ::fstat(fd, &about);
  return about;
}

// None: a file of this node alone.
Inode* inode_of(int fd) {
  static std::map<ino_t, Inode> inodes;
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = ::readlink(link, path, sizeof path);
  if (n < 0 || !std::string(path, static_cast<size_t>(n)).ends_with(".tmp-0")) return nullptr;
  struct stat about = stat_of(fd);
  return &inodes.try_emplace(about.st_ino, Inode{about.st_size, {}}).first->second;
}

Page& page_at(int fd, Inode& inode, off_t begin) {
  auto [found, is_new] = inode.pages.try_emplace(begin);
  if (is_new && begin < inode.size) read_through(fd, found->second.bytes.data(), kPage, begin);
  return found->second;
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  std::lock_guard lock(mutex);
  Inode* inode = inode_of(fd);
  if (!inode) return write_through(fd, data, n, offset);
  if (offset > inode->size) inode->size = std::max(inode->size, stat_of(fd).st_size);
  bool through = ::fcntl(fd, F_GETFL) & O_DSYNC;
  auto* from = static_cast<const char*>(data);
  off_t end = offset + static_cast<off_t>(n);
  for (off_t at = offset, next = 0; at < end; from += next - at, at = next) {
    off_t begin = at / kPage * kPage;
    next = std::min(end, begin + kPage);
    Page& page = page_at(fd, *inode, begin);
    std::copy_n(from, next - at, page.bytes.data() + (at - begin));
    off_t known = std::min(kPage, std::max(inode->size, next) - begin);
    page.dirty = through ? page.dirty : std::max(page.dirty, known);
  }
  inode->size = std::max(inode->size, end);
  return through ? write_through(fd, data, n, offset) : static_cast<ssize_t>(n);
}

// Short reads are allowed: the rest of a page.
ssize_t pread(int fd, void* data, size_t n, off_t offset) {
  std::lock_guard lock(mutex);
  Inode* inode = inode_of(fd);
  if (!inode) return read_through(fd, data, n, offset);
  off_t begin = offset / kPage * kPage, end = std::max(inode->size, stat_of(fd).st_size);
  end = std::min({std::max(end, offset), begin + kPage, offset + static_cast<off_t>(n)});
  Page& page = page_at(fd, *inode, begin);
  std::copy_n(page.bytes.data() + (offset - begin), end - offset, static_cast<char*>(data));
  return end - offset;
}

// Late enough that every node has its pages before another's are on the server.
int fsync(int fd) {
  std::lock_guard lock(mutex);
  Inode* inode = inode_of(fd);
  if (inode) ::usleep(200'000);
  if (inode)
    for (auto& [begin, page] : inode->pages)
      if (off_t n = std::exchange(page.dirty, 0); n > 0)
        write_through(fd, page.bytes.data(), static_cast<size_t>(n), begin);
  return sync_through(fd);
}
}
