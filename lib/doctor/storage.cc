#include "doctor/storage.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace neox {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kChunk = 4 << 20;
constexpr int64_t kFewInodes = 10'000;

// Mount points write a blank as \040.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    bool octal = text[i] == '\\' && i + 3 < text.size();
    out += octal ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    if (octal) i += 3;
  }
  return out;
}

bool is_below(const std::string& path, const std::string& point) {
  if (point == "/" || path == point) return true;
  return path.starts_with(point) && path[point.size()] == '/';
}

// A file without a name, so that it goes with the process, however that ends. Messages name its
// directory: what all nodes say of a full file system is to be the same text.
class TestFile {
 public:
  explicit TestFile(const fs::path& dir) : dir_(dir.string()) {
    std::string path = (dir / ".neox-doctor.XXXXXX").string();
    fd_ = ::mkstemp(path.data());
    check_io(fd_ >= 0, "cannot write to ", dir_, ": ", describe_errno(errno));
    ::unlink(path.c_str());
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  ~TestFile() { ::close(fd_); }
  // Bytes per second.
  double write(int64_t bytes) const {
    // File systems that compress must not have it easy.
    std::vector<uint64_t> data(kChunk / sizeof(uint64_t));
    std::mt19937_64 random(1);
    std::ranges::generate(data, random);
    auto begin = Clock::now();
    for (int64_t done = 0; done < bytes; done += kChunk) {
      data[0] = static_cast<uint64_t>(done);
      for (int64_t at = 0; at < kChunk;)
        at += checked("write to", ::write(fd_, reinterpret_cast<const char*>(data.data()) + at,
                                          static_cast<size_t>(kChunk - at)));
    }
    checked("fsync in", ::fsync(fd_));
    return static_cast<double>(bytes) / seconds_since(begin);
  }
  double read(int64_t bytes) const {
    (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    std::vector<char> data(kChunk);
    auto begin = Clock::now();
    int64_t done = 0;
    for (; done < bytes;) {
      int64_t got = checked("read from", ::pread(fd_, data.data(), data.size(), done));
      check_io(got > 0, "a file in ", dir_, " ends at ", done, " of ", bytes, " bytes");
      done += got;
    }
    return static_cast<double>(bytes) / seconds_since(begin);
  }

 private:
  int64_t checked(const char* what, int64_t result) const {
    check_io(result >= 0, what, " ", dir_, ": ", describe_errno(errno),
             errno == ENOSPC ? " (on Lustre a single full target suffices: lfs df)" : "");
    return result;
  }

  std::string dir_;
  int fd_;
};

// "stripe_count: 1 stripe_size: 1048576 ...", or "".
std::string striping(const std::string& dir) {
  if (dir.find('\'') != std::string::npos) return "";
  std::string command = "lfs getstripe -d '" + dir + "' 2>/dev/null", text;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 512> buffer{};
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe.get())) text += buffer.data();
  std::istringstream words(text);
  std::string out, word;
  while (words >> word) out += (out.empty() ? "" : " ") + word;
  return out;
}

bool is_lost_with_the_container(const std::string& kind) {
  return kind == "overlay" || kind == "tmpfs" || kind == "ramfs";
}

void check_room(const fs::path& dir, RankReport& report) {
  struct statvfs room {};
  check_call(::statvfs(dir.c_str(), &room) == 0, "ask for the free space of", dir);
  std::string name = "path " + dir.string();
  auto free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  auto size = static_cast<double>(room.f_blocks) * static_cast<double>(room.f_frsize);
  std::string text = concat(human_bytes(free), " free of ", human_bytes(size));
  // Some file systems have no fixed number of inodes and report 0.
  bool few = room.f_files > 0 && static_cast<int64_t>(room.f_favail) < kFewInodes;
  if (room.f_files > 0)
    text += concat(", ", human_count(static_cast<double>(room.f_favail)), " inodes free");
  if (free < 0.05 * size || few) text += ": free some before a long run";
  report.findings.push_back(
      {free < 0.05 * size || few ? Verdict::kNote : Verdict::kFine, name, text});
}

}  // namespace

Mount find_mount(const std::string& mountinfo, const std::string& path) {
  Mount best;
  for (const std::string& line : split(mountinfo, '\n')) {
    // 36 35 98:0 /root /point options [tag...] - kind source options
    size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    Mount mount;
    std::string skipped;
    before >> skipped >> skipped >> skipped >> skipped >> mount.point;
    after >> mount.kind >> mount.source;
    mount.point = unescape(mount.point);
    // Of two on the same point the later one hides the other.
    if (is_below(path, mount.point) && mount.point.size() >= best.point.size()) best = mount;
  }
  return best;
}

void check_storage(const fs::path& dir, int64_t bytes, const std::string& suffix,
                   RankReport& report) {
  std::string name = "path " + dir.string();
  try {
    std::error_code error;
    fs::path real = fs::canonical(dir, error);
    check_io(!error && fs::is_directory(real), dir.string(), " is not a directory here",
             error ? ": " + error.message() : "", "; is it mounted, also in the container?");
    std::ifstream mountinfo("/proc/self/mountinfo");
    Mount mount = find_mount({std::istreambuf_iterator<char>(mountinfo), {}}, real.string());
    std::string layout = mount.kind == "lustre" ? striping(real.string()) : "";
    bool lost = is_lost_with_the_container(mount.kind);
    report.findings.push_back(
        {lost ? Verdict::kNote : Verdict::kFine, name,
         concat(mount.kind, " of ", mount.source, " on ", mount.point,
                layout.empty() ? "" : "; " + layout,
                lost ? ": it does not outlive the node or its container" : "")});
    check_room(real, report);
    TestFile file(real);
    int64_t rounded = std::max(bytes / kChunk, int64_t{1}) * kChunk;
    double written = file.write(rounded), read = file.read(rounded);
    report.rates.push_back({"write" + suffix, "MB/s", written / 1e6, Blame::kNobody});
    report.rates.push_back({"read" + suffix, "MB/s", read / 1e6, Blame::kNobody});
  } catch (const Error& e) { report.findings.push_back({Verdict::kWrong, name, e.what()}); }
}

}  // namespace neox
