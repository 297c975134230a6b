#include "prepare/input_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr size_t kHeadBytes = 4096;

struct Compression {
  std::string_view magic;
  const char* name;
  const char* cure;
};
constexpr Compression kCompressions[] = {
    {"\x1f\x8b", "gzip", "gunzip -k"},
    {"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
    {"\xfd"
     "7zXZ",
     "xz", "unxz -k"},
    {"BZh", "bzip2", "bunzip2 -k"},
    {"PK\x03\x04", "zip", "unzip"},
};

std::string read_head(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check_io(fd >= 0, "cannot open ", path, ": ", describe_errno(errno));
  std::string head(kHeadBytes, 0);
  ssize_t n = ::read(fd, head.data(), head.size());
  int error = errno;
  ::close(fd);
  check_io(n >= 0, "cannot read ", path, ": ", describe_errno(error));
  head.resize(static_cast<size_t>(n));
  return head;
}

bool one_of(const std::string& ending, std::initializer_list<const char*> endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

InputFile::Format format_of(const std::string& path, std::string_view head, Separated separated) {
  std::string ending = fs::path(path).extension().string();
  if (separated == Separated::kYes || one_of(ending, {".txt", ".text", ".md"}))
    return InputFile::Format::kText;
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  char first = trim(head).empty() ? ' ' : trim(head).front();
  bool json = one_of(ending, {".jsonl", ".ndjson", ".json"});
  check_io(
      !json || first != '[', path,
      ": this is one JSON array, and JSON lines are wanted, an object on each line; convert it "
      "with jq -c '.[]'");
  return json || first == '{' ? InputFile::Format::kJsonLines : InputFile::Format::kText;
}

// Of the paths given, and of what directories hold.
class Finder {
 public:
  explicit Finder(Separated separated) : separated_(separated) {}

  void add_path(const std::string& path) {
    std::error_code error;
    check_io(fs::exists(path, error), "no input ", path, ": ",
             error ? describe_errno(error.value()) : "there is no such file or directory");
    if (!fs::is_directory(path)) return add_file(path, Named::kYes);
    std::vector<std::string> found;
    auto follow = fs::directory_options::follow_directory_symlink;
    for (fs::recursive_directory_iterator it(path, follow, error), end; it != end;
         it.increment(error)) {
      check_io(!error, "cannot read the directory ", path, ": ", describe_errno(error.value()));
      bool hidden = it->path().filename().string().starts_with('.');
      if (hidden && it->is_directory()) it.disable_recursion_pending();
      if (!hidden && it->is_regular_file()) found.push_back(it->path().string());
    }
    check_io(!error, "cannot read the directory ", path, ": ", describe_errno(error.value()));
    std::sort(found.begin(), found.end());
    for (const std::string& file : found) add_file(file, Named::kNo);
  }

  InputFiles take() { return std::move(result_); }

 private:
  enum class Named { kNo, kYes };

  void add_file(const std::string& path, Named named) {
    check_io(fs::is_regular_file(path), path,
             " is neither a file nor a directory; write its content to a file");
    // A link beside its target, as Debian's fortunes have them, is the same text.
    if (named == Named::kNo && !seen_.insert(fs::canonical(path)).second) return;
    std::string head = read_head(path);
    for (const Compression& c : kCompressions)
      check_io(!head.starts_with(c.magic), path, " is compressed (", c.name,
               "), which is not read here; unpack it first: ", c.cure, " ", path);
    if (head.find('\0') != std::string::npos) {
      check_io(named == Named::kNo, path, " is not text: it has bytes of value 0");
      result_.left_out.push_back(path);
      return;
    }
    auto bytes = static_cast<int64_t>(fs::file_size(path));
    result_.files.push_back({path, format_of(path, head, separated_), bytes});
    result_.bytes += bytes;
  }

  Separated separated_;
  std::set<fs::path> seen_;
  InputFiles result_;
};

}  // namespace

InputFiles find_input_files(std::span<const std::string> paths, Separated separated) {
  Finder finder(separated);
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::exists(path, error)) {
      finder.add_path(path);
      continue;
    }
    for (const std::string& part : split(path, ','))
      if (!trim(part).empty()) finder.add_path(std::string(trim(part)));
  }
  InputFiles found = finder.take();
  check_io(!found.files.empty(), "no text in ", join(paths, ", "), ": ",
           found.left_out.empty() ? "no file is there" : "all files there are binary");
  return found;
}

}  // namespace neox
