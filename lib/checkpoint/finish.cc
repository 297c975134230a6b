#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/writing.h"

namespace neox {
namespace {

// The size of a file that `writer` wrote, as `reader`, which is this rank, sees it.
int64_t bytes_seen(const fs::path& path, int writer, int reader) {
  std::error_code error;
  auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  check_io(error != std::errc::no_such_file_or_directory, path.string(), ", written by rank ",
           writer, ", is not visible to rank ", reader,
           "; is the directory on a file system that all nodes share?");
  check_io(!error, "cannot stat ", path.string(), ": ", describe_errno(error.value()));
  return bytes;
}

std::string index_of(const Catalog& catalog) {
  Hdf5File file = Hdf5File::in_memory(kIndexFile);
  put_catalog(file, catalog);
  return file.image();
}

// The parts of all rank files. Rank 0 looks at each file, too: who has read it may be on a node
// that has another directory of this name.
Catalog merge_parts(const fs::path& dir, const std::vector<std::string>& parts) {
  CatalogMerger merger;
  for (size_t at = 0; at < parts.size(); ++at) {
    if (parts[at].empty()) continue;
    auto rank = static_cast<int>(at);
    std::string path = (dir / rank_file_name(rank)).string();
    Catalog part = get_catalog(Hdf5File::from_image(parts[at], path), path);
    const StoredFile& stored = part.files.at(0);
    check_io(bytes_seen(path, rank, 0) == stored.bytes, path, " is not what rank ", rank, " wrote");
    merger.add(stored, part);
  }
  check_covered_once(merger.all());
  return merger.all();
}

// The checkpoint is whole and has its name: a run finds it without `latest` too.
void update_latest(const fs::path& run_dir, const std::string& name) {
  try {
    write_file_atomically(run_dir / kLatestFile, name);
  } catch (const Error& e) {
    log_warning((run_dir / name).string(),
                " is saved, but `latest` still names another: ", e.what());
  }
}

}  // namespace

fs::path start_directory(const SaveOptions& options, int64_t iteration) {
  auto plain = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; };
  check(!options.life.empty() && std::ranges::all_of(options.life, plain), "life '", options.life,
        "' cannot be part of a file name");
  make_directories(options.dir);
  fs::path there = options.dir / step_name(iteration);
  std::string foreign = is_dir(there) ? foreign_in(there) : "";
  check_io(foreign.empty(), "it would replace ", foreign, "; move that away, or save elsewhere");
  fs::path temporary = options.dir / temporary_name(iteration, options.life);
  std::error_code error;
  fs::remove_all(temporary, error);
  check_io(!error, "cannot remove what is left of ", temporary.string(), ": ",
           describe_errno(error.value()));
  make_directories(temporary);
  return temporary;
}

std::string read_index_part(const fs::path& dir, int writer, const std::string& reply, int reader) {
  if (reply.empty()) return "";
  StoredFile stored{rank_file_name(writer), 0, {}};
  std::string path = (dir / stored.name).string();
  stored.bytes = bytes_seen(path, writer, reader);
  Catalog part = get_catalog(Hdf5File(path, Hdf5File::Mode::kRead), path);
  stored.rest = checksum_outside(RawFile(path, RawFile::Mode::kRead), part.ranges()[0]);
  check_io(reply == concat(stored.bytes, " ", to_string(stored.rest)), path, " is not what rank ",
           writer, " wrote");
  part.files = {stored};
  return index_of(part);
}

int64_t finish_directory(const fs::path& dir, const std::vector<std::string>& parts,
                         const TrainState& state) {
  Catalog catalog = merge_parts(dir, parts);
  std::string index = index_of(catalog);
  std::string json = to_json(state);
  write_flushed(dir / kIndexFile, index);
  write_flushed(dir / kStateFile, json);
  write_flushed(dir / kCompleteFile, complete_text(index, json));
  sync_directory(dir);
  int64_t bytes = 0;
  for (const StoredFile& file : catalog.files) bytes += file.bytes;
  return bytes;
}

void publish_whole(const SaveOptions& options, const fs::path& temporary, int64_t iteration) {
  check_claim(options.dir, options.life);
  publish(temporary, options.dir / step_name(iteration), options.life);
  update_latest(options.dir, step_name(iteration));
}

void log_saved(const fs::path& dir, int64_t bytes, SaveClock::time_point start) {
  std::chrono::duration<double> time = SaveClock::now() - start;
  auto size = static_cast<double>(bytes);
  log_info("saved ", dir.string(), ": ", human_bytes(size), " in ", human_duration(time.count()),
           ", ", human_bytes(size / time.count()), "/s");
}

}  // namespace neox
