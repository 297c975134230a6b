#include "data/index_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/tasks.h"
#include "data/output_file.h"

namespace neox {
namespace {

constexpr char kCacheMagic[8] = {'N', 'E', 'O', 'X', 'S', 'I', 'D', 'X'};
constexpr size_t kAlignment = 64, kHashedAtOnce = 64 << 20;

struct Header {
  char magic[8];
  uint64_t version;
  char name[64];
  uint64_t bytes[IndexCache::kMostArrays];
  uint64_t payload_hash[2];
  uint64_t header_hash;  // XXH3-64 of what stands before it
};

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
constexpr size_t kCacheHeaderBytes = 192;
static_assert(sizeof(Header) <= kCacheHeaderBytes && kCacheHeaderBytes % kAlignment == 0);

using Hash = std::array<uint64_t, 2>;

Hash hash_of(std::span<const std::byte> bytes) {
  XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

// The hash of the hashes of chunks, which a few threads compute.
Hash hash_in_chunks(const std::vector<std::span<const std::byte>>& arrays) {
  std::vector<std::span<const std::byte>> chunks;
  for (auto array : arrays)
    for (size_t at = 0; at < array.size(); at += kHashedAtOnce)
      chunks.push_back(array.subspan(at, std::min(kHashedAtOnce, array.size() - at)));
  std::vector<Hash> hashes(chunks.size());
  run_tasks(chunks.size(), std::min(std::thread::hardware_concurrency(), 4u),
            [&](size_t i) { hashes[i] = hash_of(chunks[i]); });
  return hash_of(std::as_bytes(std::span(hashes)));
}

uint64_t hash_of(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_hash));
}

// Held by one process, or one thread of it, at a time; let go when its holder ends, however.
class FileLock {
 public:
  explicit FileLock(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  }
  FileLock(const FileLock&) = delete;
  ~FileLock() {
    if (fd_ < 0) return;
    ::unlink(path_.c_str());
    ::close(fd_);
  }
  // False: another has it. A file system without locks gives it to all.
  bool take() {
    if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
    return errno != EWOULDBLOCK && errno != EINTR;
  }
  // Held: whether one before has let it go, and was not killed, which leaves the file.
  bool was_let_go() const { return fd_ >= 0 && !is_same_file(fd_, path_); }
  // Ends without the right to remove the file.
  void leave() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  fs::path path_;
  int fd_ = -1;
};

// What builders of that file have left who were killed; that of one who lives is locked.
void remove_abandoned(const fs::path& path) {
  std::string begin = path.filename().string() + ".tmp-";
  std::error_code error;
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    if (!at->path().filename().string().starts_with(begin)) continue;
    int file = ::open(at->path().c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
    ::close(file);
  }
}

// Differs between the processes of all nodes that share the directory.
std::string unique_life() {
  std::random_device random;
  return concat(::getpid(), "-", random(), "-", random());
}

}  // namespace

IndexCache::IndexCache(std::vector<fs::path> directories, std::chrono::seconds wait)
    : directories_(std::move(directories)), wait_(wait) {}

void IndexCache::warn(const std::string& text) {
  if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end())
    warnings_.push_back(text);
}

std::optional<StoredArrays> IndexCache::open(const fs::path& path) {
  auto file = std::make_shared<MappedFile>(path, MappedFile::Access::kSequential);
  std::span<const std::byte> bytes = file->bytes();
  auto damaged = [&](const char* what) -> std::optional<StoredArrays> {
    warn(concat(path.string(), " ", what, "; the index is built again"));
    return std::nullopt;
  };
  if (bytes.size() < kCacheHeaderBytes) return damaged("is truncated");
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kCacheMagic, sizeof kCacheMagic) != 0 || header.version != 1 ||
      header.header_hash != hash_of(header))
    return damaged("has a damaged header");
  if (std::string name = path.filename();
      std::string(header.name, strnlen(header.name, sizeof header.name)) != name)
    return damaged("is a copy of another index");
  StoredArrays stored{{}, file};
  size_t at = kCacheHeaderBytes;
  for (uint64_t size : header.bytes) {
    if (size > bytes.size() || at + aligned(size) > bytes.size()) return damaged("is truncated");
    stored.arrays.push_back(bytes.subspan(at, size));
    at += aligned(size);
  }
  if (at != bytes.size()) return damaged("is longer than it says");
  Hash hash = hash_in_chunks(stored.arrays);
  if (hash[0] != header.payload_hash[0] || hash[1] != header.payload_hash[1])
    return damaged("is damaged: its checksum is wrong");
  ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_NORMAL);
  return stored;
}

std::optional<StoredArrays> IndexCache::find(const std::string& name) {
  for (const fs::path& directory : directories_) {
    std::error_code error;
    if (!fs::is_regular_file(directory / name, error)) continue;
    try {
      if (auto found = open(directory / name)) return found;
    } catch (const Error& e) { warn(concat(e.what(), "; the index is built again")); }
  }
  return std::nullopt;
}

std::optional<fs::path> IndexCache::writable_directory() {
  for (const fs::path& directory : directories_) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (!error && ::access(directory.c_str(), W_OK | X_OK) == 0) return directory;
  }
  return std::nullopt;
}

void IndexCache::store(const fs::path& path, const StoredArrays& built) {
  Header header{};
  std::copy(std::begin(kCacheMagic), std::end(kCacheMagic), header.magic);
  header.version = 1;
  path.filename().string().copy(header.name, sizeof header.name);
  for (size_t i = 0; i < built.arrays.size(); ++i) header.bytes[i] = built.arrays[i].size();
  Hash hash = hash_in_chunks(built.arrays);
  std::copy(hash.begin(), hash.end(), header.payload_hash);
  header.header_hash = hash_of(header);
  OutputFile file(path, unique_life());
  const std::array<std::byte, kCacheHeaderBytes> zeros{};
  file.write(std::as_bytes(std::span(&header, 1)));
  file.write(std::span(zeros).first(kCacheHeaderBytes - sizeof header));
  for (auto array : built.arrays) {
    file.write(array);
    file.write(std::span(zeros).first(aligned(array.size()) - array.size()));
  }
  file.flush_to_disk();
  file.publish();
}

StoredArrays IndexCache::get(const std::string& name, const std::function<StoredArrays()>& build,
                             const Poll& poll) {
  check(name.size() < sizeof(Header::name), "index ", name);
  if (auto found = find(name)) return *found;
  auto directory = writable_directory();
  if (directory) return get_in(*directory / name, build, poll);
  if (!directories_.empty())
    warn(concat(directories_.front().string(),
                " cannot be written to, so each rank builds the sample index in its own memory at "
                "each start; name a directory of the nodes' shared file system with "
                "data_cache_path"));
  return build();
}

StoredArrays IndexCache::get_in(const fs::path& path, const std::function<StoredArrays()>& build,
                                const Poll& poll) {
  std::string name = path.filename().string();
  std::error_code error;
  bool absent = !fs::is_regular_file(path, error);
  FileLock lock(path.string() + ".lock");
  auto start = std::chrono::steady_clock::now();
  for (bool waited = false; !lock.take(); waited = true) {
    if (poll) poll();
    // Many ranks check the file side by side, not each behind the other.
    if (absent && fs::is_regular_file(path, error)) {
      lock.leave();
      if (auto found = find(name)) return *found;
      return build();
    }
    if (std::chrono::steady_clock::now() - start > wait_) {
      lock.leave();
      warn(concat(path.string(), ": another process has been building it for ", wait_.count(),
                  " s; built in memory"));
      return build();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(waited ? 50 : 5));
  }
  if (auto found = find(name)) return *found;
  // All who still wait would build it one after another, and be as unable to store it.
  if (lock.was_let_go()) {
    lock.leave();
    warn(concat(path.string(), " is not there, though another process has built it (is the disk ",
                "full?); built in memory"));
    return build();
  }
  return keep(path, build());
}

StoredArrays IndexCache::keep(const fs::path& path, const StoredArrays& built) {
  std::string name = path.filename().string();
  if (auto found = find(name)) return *found;  // without locks another has been as fast
  try {
    remove_abandoned(path);
    store(path, built);
  } catch (const Error& e) {
    warn(concat("the sample index is not kept: ", e.what()));
    return built;
  }
  auto stored = find(name);
  return stored ? *stored : built;
}

}  // namespace neox
