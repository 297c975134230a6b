// Runs read back: the scalars of a metrics.jsonl or of TensorBoard event files, ours or others'.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

struct Point {
  int64_t step = 0;
  double time = 0;   // seconds since 1970
  double value = 0;  // may be infinite or not a number
};

struct RunLog {
  std::string name;                                  // for people
  fs::path path;                                     // the file, or the directory of event files
  std::map<std::string, std::vector<Point>> series;  // by tag; steps ascend, each once
  std::vector<std::string> warnings;                 // lines or records left out, and why
};

// The runs that a user means: a metrics.jsonl, an event file, or a directory that holds either, up
// to four levels down (each directory with one is a run; metrics.jsonl is preferred). A run that is
// met again, as by a link, counts once. Throws (exit code 74) where there is none. Names differ
// from each other; warnings are also logged.
std::vector<RunLog> load_runs(const std::vector<std::string>& paths);

// The parts of it: the text of a metrics.jsonl, and the bytes of the event files of one directory
// in the order of their names.
RunLog read_metrics(std::string_view text);
RunLog read_events(const std::vector<fs::path>& files);

// The last step that read_metrics() would have values of, by the lines of the last life that wrote
// some: of a file of any size, the end alone is read. Nothing where there is none.
std::optional<int64_t> last_step(std::string_view text);

}  // namespace neox
