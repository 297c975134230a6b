#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/writing.h"

namespace neox {
namespace {

// The catalogs of all rank files as they lie on the disk, compared with what the ranks said of
// them.
Catalog merge_catalogs(const fs::path& dir, const std::vector<std::string>& replies) {
  CatalogMerger merger;
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    if (replies[rank].empty()) continue;
    StoredFile stored{rank_file_name(static_cast<int>(rank)), 0, {}};
    std::string path = (dir / stored.name).string();
    check_io(is_there(path), path, ", written by rank ", rank, ", is not visible to rank 0; is ",
             "the directory on a file system that all nodes share?");
    Catalog part = get_catalog(Hdf5File(path, Hdf5File::Mode::kRead), path);
    RawFile file(path, RawFile::Mode::kRead);
    stored.bytes = file.size();
    stored.rest = checksum_outside(file, part.ranges()[0]);
    check_io(replies[rank] == concat(stored.bytes, " ", to_string(stored.rest)), path,
             " is not what rank ", rank, " wrote");
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

int64_t finish_directory(const fs::path& dir, const std::vector<std::string>& replies,
                         const TrainState& state) {
  Catalog catalog = merge_catalogs(dir, replies);
  std::string index;
  {
    Hdf5File file = Hdf5File::in_memory(kIndexFile);
    put_catalog(file, catalog);
    index = file.image();
  }
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
