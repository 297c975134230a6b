#include "checkpoint/layout.h"

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr std::string_view kFirstWords = "neox.cpp checkpoint ";

std::string line_of(const char* name, std::string_view content) {
  return concat(name, " ", content.size(), " ", to_string(checksum(content)), "\n");
}

std::string sealed(const std::string& lines) {
  return concat(lines, "check ", to_string(checksum(lines)), "\n");
}

}  // namespace

std::string step_name(int64_t iteration) { return concat("global_step", iteration); }

std::string temporary_name(int64_t iteration, const std::string& life) {
  return concat(step_name(iteration), ".tmp-", life);
}

bool is_dir(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string rank_file_name(int rank) { return printed("rank_%05d.h5", rank); }

std::optional<int64_t> step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "global_step";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  auto iteration = number_of<int64_t>(name.substr(kPrefix.size()));
  return iteration && step_name(*iteration) == name ? iteration : std::nullopt;
}

std::string complete_text(std::string_view index, std::string_view state) {
  return sealed(concat(kFirstWords, kFormatVersion, "\n", line_of(kIndexFile, index),
                       line_of(kStateFile, state)));
}

void check_complete(const fs::path& dir, std::string_view text, std::string_view index,
                    std::string_view state) {
  std::string path = (dir / kCompleteFile).string();
  size_t last = text.size() < 2 ? std::string_view::npos : text.rfind('\n', text.size() - 2);
  std::string lines(text.substr(0, last == std::string_view::npos ? 0 : last + 1));
  check_io(!lines.empty() && text == sealed(lines) && lines.starts_with(kFirstWords), path,
           " is damaged: its own checksum is wrong");
  std::vector<std::string> line = split(lines, '\n');
  std::string version = line[0].substr(kFirstWords.size());
  check_io(version == concat(kFormatVersion), dir.string(), " has version ", version,
           " of the format, this program reads version ", kFormatVersion,
           "; use the neox.cpp that wrote it, or a newer one");
  auto same = [&](size_t i, const char* name, std::string_view content) {
    check_io(line.size() > i && line[i] + "\n" == line_of(name, content), (dir / name).string(),
             " is damaged: its size or checksum is not the one in ", kCompleteFile);
  };
  same(1, kIndexFile, index);
  same(2, kStateFile, state);
}

}  // namespace neox
