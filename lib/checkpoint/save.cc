#include <algorithm>
#include <cctype>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace neox {
namespace {

// For the slowest rank's file to reach the disk.
constexpr std::chrono::seconds kDeadline = std::chrono::hours(2);

std::string failure(int exit, const char* text) { return concat("error ", exit, " ", text); }

// Throws the same on every rank where one failed: with the exit code of the first of them.
void check_replies(const std::vector<std::string>& replies, const std::string& what) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> failures;
  int exit = 0;
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    std::vector<std::string> word = split(replies[rank], ' ');
    if (word[0] != "error") continue;
    if (!exit) exit = std::stoi(word.at(1));
    failures.push_back(
        concat("rank ", rank, ": ", replies[rank].substr(word[0].size() + word[1].size() + 2)));
  }
  if (failures.empty()) return;
  size_t more = failures.size() > kNamed ? failures.size() - kNamed : 0;
  failures.resize(failures.size() - more);
  fail(static_cast<Exit>(exit), "cannot save ", what, ": ", join(failures, "; "),
       more ? concat("; and ", more, " ranks more") : "");
}

// Collective over control. What `work` returned on each rank; where it threw on one, all throw.
template <class Work>
std::vector<std::string> together(Control& control, const std::string& what, Work work) {
  std::string mine;
  try {
    mine = "ok " + work();
  } catch (const Error& e) {
    mine = failure(static_cast<int>(e.exit()), e.what());
  } catch (const std::exception& e) { mine = failure(static_cast<int>(Exit::kInternal), e.what()); }
  std::vector<std::string> replies = control.gather(mine, kDeadline);
  check_replies(replies, what);
  for (std::string& reply : replies) reply.erase(0, 3);
  return replies;
}

std::string dataset_name(const StateChunk& chunk) { return chunk.buffer + "/" + chunk.state; }

// Elements up to the end of the last box: what follows is padding.
int64_t used_elements(const StateChunk& chunk) {
  if (chunk.placements.empty()) return 0;
  const Placement& last = chunk.placements.back();
  return last.offset + last.box.numel();
}

void check_chunk(const StateChunk& chunk) {
  std::string name = dataset_name(chunk);
  check(chunk.data.is_contiguous(), name, " is not contiguous");
  check(!chunk.buffer.empty() && !chunk.state.empty() && !name.starts_with("catalog/"), "'", name,
        "' cannot be the name of a dataset");
  dtype_name(chunk.data.scalar_type());
  int64_t end = 0;
  for (const Placement& p : chunk.placements) {
    bool inside = p.box.start.size() == p.shape.size() && p.box.extent.size() == p.shape.size() &&
                  intersect(p.box, whole(p.shape)) == p.box;
    check(inside && !p.name.empty(), name, ": ", to_string(p.box), " is no box of ", p.name, " ",
          to_string(p.shape));
    check(p.offset >= end && p.offset + p.box.numel() <= chunk.data.numel(), name, ": ", p.name,
          " ", to_string(p.box), " at element ", p.offset, " of ", chunk.data.numel(),
          " overlaps the one before, or does not fit");
    end = p.offset + p.box.numel();
  }
}

// One rank's file: HDF5 lays it out, the payload is written at the places it gave, HDF5 adds the
// catalog.
class RankFile {
 public:
  RankFile(fs::path path, std::span<const StateChunk> chunks) : path_(std::move(path)) {
    for (const StateChunk& chunk : chunks) {
      check_chunk(chunk);
      if (used_elements(chunk) > 0) chunks_.push_back(&chunk);
    }
  }
  // "<bytes> <checksum of all that belongs to no box>", or "" where this rank owns nothing.
  std::string write() {
    if (chunks_.empty()) return "";
    lay_out();
    RawFile file(path_, RawFile::Mode::kWrite);
    file.reserve(file.size());
    for (size_t i = 0; i < chunks_.size(); ++i) write_chunk(file, *chunks_[i], i);
    Hdf5File tables(path_, Hdf5File::Mode::kExtend);
    put_catalog(tables, catalog_);
    tables.close();
    std::string reply =
        concat(file.size(), " ", to_string(checksum_outside(file, catalog_.ranges()[0])));
    file.close();
    return reply;
  }

 private:
  void lay_out() {
    Hdf5File file(path_, Hdf5File::Mode::kCreate);
    for (const StateChunk* chunk : chunks_) {
      std::string name = dataset_name(*chunk);
      int64_t offset = file.add_payload(name, chunk->data.scalar_type(), used_elements(*chunk));
      catalog_.datasets.push_back({0, name, offset});
    }
    file.close();
  }
  void write_chunk(RawFile& file, const StateChunk& chunk, size_t dataset) {
    at::Tensor host = chunk.data.cpu();
    size_t item = host.element_size();
    auto all = std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                         static_cast<size_t>(used_elements(chunk)) * item);
    for (const Placement& p : chunk.placements) {
      auto bytes = all.subspan(static_cast<size_t>(p.offset) * item,
                               static_cast<size_t>(p.box.numel()) * item);
      catalog_.boxes.push_back(
          {tensor_id(chunk, p), static_cast<int64_t>(dataset), p.box, p.offset, checksum(bytes)});
    }
    file.write(all, catalog_.datasets[dataset].offset);
  }
  int64_t tensor_id(const StateChunk& chunk, const Placement& p) {
    auto next = static_cast<int64_t>(catalog_.tensors.size());
    auto [at, fresh] = ids_.try_emplace({chunk.state, p.name}, next);
    if (fresh) catalog_.tensors.push_back({chunk.state, p.name, chunk.data.scalar_type(), p.shape});
    return at->second;
  }

  fs::path path_;
  std::vector<const StateChunk*> chunks_;
  Catalog catalog_;
  std::map<std::pair<std::string, std::string>, int64_t> ids_;
};

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

// Rank 0's part: index, train state, COMPLETE. Returns the bytes of the rank files.
int64_t finish(const fs::path& dir, const std::vector<std::string>& replies,
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

void start_directory(const SaveOptions& options, const fs::path& temporary) {
  auto plain = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; };
  check(!options.life.empty() && std::ranges::all_of(options.life, plain), "life '", options.life,
        "' cannot be part of a file name");
  make_directories(options.dir);
  std::error_code error;
  fs::remove_all(temporary, error);
  check_io(!error, "cannot remove what is left of ", temporary.string(), ": ",
           describe_errno(error.value()));
  make_directories(temporary);
}

void check_same_target(const std::vector<std::string>& replies) {
  for (size_t rank = 1; rank < replies.size(); ++rank)
    check(replies[rank] == replies[0], "rank ", rank, " saves ", replies[rank], ", but rank 0 ",
          replies[0]);
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

void log_saved(const fs::path& dir, int64_t bytes, std::chrono::steady_clock::time_point start) {
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  auto size = static_cast<double>(bytes);
  log_info("saved ", dir.string(), ": ", human_bytes(size), " in ", human_duration(time.count()),
           ", ", human_bytes(size / time.count()), "/s");
}

}  // namespace

void save_checkpoint(const SaveOptions& options, std::span<const StateChunk> chunks,
                     const TrainState& state, Control& control) {
  auto start = std::chrono::steady_clock::now();
  bool first = control.rank() == 0;
  std::string name = step_name(state.iteration);
  fs::path final_dir = options.dir / name;
  fs::path temporary = options.dir / temporary_name(state.iteration, options.life);
  std::string what = final_dir.string();
  int64_t bytes = 0;
  try {
    check_same_target(together(control, what, [&] {
      if (first) start_directory(options, temporary);
      return temporary.string();
    }));
    auto replies = together(control, what, [&] {
      return RankFile(temporary / rank_file_name(control.rank()), chunks).write();
    });
    together(control, what, [&]() -> std::string {
      if (!first) return "";
      bytes = finish(temporary, replies, state);
      check_claim(options.dir, options.life);
      publish(temporary, final_dir, options.life);
      update_latest(options.dir, name);
      return "";
    });
  } catch (...) {
    std::error_code ignored;
    if (first) fs::remove_all(temporary, ignored);
    throw;
  }
  if (!first) return;
  log_saved(final_dir, bytes, start);
  prune(options.dir, options.keep_last, state.iteration, options.life);
}

}  // namespace neox
