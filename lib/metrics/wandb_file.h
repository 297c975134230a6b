// Runs for Weights & Biases, as its own client leaves them where it has no network, for `wandb
// sync` to upload: <dir>/wandb/offline-run-<start>-<id>/run-<id>.wandb, a log of LevelDB's format
// whose records are wandb_internal.Record messages (docs/formats.md;
// wandb/proto/wandb_internal.proto of wandb 0.31). Each start of a run writes a file of its own,
// all with one id, which wandb sync joins to one run. A writer belongs to one thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/append_file.h"
#include "metrics/event_file.h"

namespace neox {

// Empty: not said, and wandb's own default counts.
struct WandbRun {
  std::string project = {}, entity = {}, group = {}, name = {}, host = {};
  std::vector<std::pair<std::string, std::string>> config = {};  // a.b.c and JSON
};

// The bytes of a record behind so many bytes of a log: in parts where it does not fit into a block.
std::string wandb_log_record(uint64_t size, std::string_view record);

class WandbFileWriter {
 public:
  // kGoesOn: the id is that of the newest run in the directory, if there is one. now: seconds since
  // 1970, as in write().
  enum class Begin { kAnew, kGoesOn };
  WandbFileWriter(const fs::path& dir, const WandbRun& run, Begin begin, double now);
  // Without finish() before, the run is one that failed.
  ~WandbFileWriter();

  // What is given for a step until another step begins, or the end, makes one row.
  void write(int64_t step, double time, const Scalars& scalars);
  void finish();
  // What `wandb sync` takes: the directories of all starts of this run.
  fs::path pattern() const;
  const fs::path& path() const { return file_.path(); }

 private:
  WandbFileWriter(const fs::path& dir, const WandbRun& run, const std::string& known_id,
                  double now);
  std::string id() const;
  void end_row();
  void end(int exit_code);
  // Numbers it, and cuts it into the log's blocks.
  void append(int field, const std::string& message);

  AppendFile file_;
  double start_;
  int64_t records_ = 0;
  uint64_t size_ = 0;  // of the file
  int64_t step_ = -1;
  std::map<std::string, std::string> row_, last_;  // JSON by name; last_: of all rows
  bool ended_ = false;
};

}  // namespace neox
