#include "metrics/run.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "metrics/metrics.h"

namespace neox {
namespace {

using Json = nlohmann::json;

constexpr int kMaxLevels = 4;
constexpr size_t kMaxWarnings = 5;

// The points of a tag.
class Written {
 public:
  void add(const Point& point) {
    ascend_ = ascend_ && (points_.empty() || points_.back().step <= point.step);
    points_.push_back(point);
  }

  // What is void stands at the end, and what is before is not looked at: a run may have many lives.
  void drop_from(int64_t step) {
    sort();
    while (!points_.empty() && points_.back().step >= step) points_.pop_back();
  }

  // By their steps; those of one step in the order they were written.
  const std::vector<Point>& sorted() {
    sort();
    return points_;
  }

 private:
  void sort() {
    if (!ascend_)
      std::stable_sort(points_.begin(), points_.end(),
                       [](const Point& a, const Point& b) { return a.step < b.step; });
    ascend_ = true;
  }

  std::vector<Point> points_;
  bool ascend_ = true;
};

// Collects points in the order they were written and drops those that later ones make void.
class Collector {
 public:
  void add(const std::string& tag, const Point& point) { written_[tag].add(point); }

  // A new life of the run begins at this step.
  void start(int64_t step) {
    for (auto& [tag, points] : written_) points.drop_from(step);
  }

  std::map<std::string, std::vector<Point>> take() {
    std::map<std::string, std::vector<Point>> series;
    for (auto& [tag, points] : written_)
      if (!points.sorted().empty()) series[tag] = last_of_each_step(points.sorted());
    return series;
  }

 private:
  static std::vector<Point> last_of_each_step(const std::vector<Point>& points) {
    std::vector<Point> last;
    for (const Point& point : points) {
      if (!last.empty() && last.back().step == point.step) last.pop_back();
      last.push_back(point);
    }
    return last;
  }

  std::map<std::string, Written> written_;
};

// Takes lines from the last one up.
class LastStep {
 public:
  void add(const std::string&, const Point& point) {
    if (point.step < first_void_) step_ = point.step;
  }
  // A life that is written behind what comes now.
  void start(int64_t step) { first_void_ = std::min(first_void_, step); }
  std::optional<int64_t> get() const { return step_; }

 private:
  int64_t first_void_ = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> step_;
};

void warn(RunLog& run, const std::string& text) {
  if (run.warnings.size() > kMaxWarnings) return;
  run.warnings.push_back(run.warnings.size() < kMaxWarnings ? text
                                                            : "more of the same is not shown");
}

double not_finite_value(const Json& line, const std::string& name) {
  auto names = line.find("not_finite");
  if (names == line.end() || !names->is_object()) return std::nan("");
  auto value = names->find(name);
  std::string text = value != names->end() && value->is_string() ? value->get<std::string>() : "";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return text == "inf" ? kInfinity : text == "-inf" ? -kInfinity : std::nan("");
}

bool is_number(const Json& object, const char* key) {
  auto value = object.find(key);
  return value != object.end() && value->is_number();
}

// False where the line is not one of ours.
template <class Points>
bool read_line(std::string_view text, Points& points) {
  Json line = Json::parse(text, nullptr, false);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer())
    return false;
  int64_t step = line["step"].get<int64_t>();
  double time = is_number(line, "time") ? line["time"].get<double>() : 0;
  auto event = line.find("event");
  if (event != line.end()) return *event == "start" ? points.start(step), true : true;
  for (const auto& [name, value] : line.items()) {
    if (name == "step" || name == "time") continue;
    if (value.is_number()) points.add(name, {step, time, value.template get<double>()});
    if (value.is_null()) points.add(name, {step, time, not_finite_value(line, name)});
  }
  return true;
}

bool is_event_file(const fs::path& path) {
  return path.filename().string().find(".tfevents.") != std::string::npos;
}

RunLog read_path(const fs::path& path, const std::vector<fs::path>& event_files) {
  RunLog run;
  if (event_files.empty()) {
    MappedFile file(path, MappedFile::Access::kSequential);
    run = read_metrics(file.text());
  } else {
    run = read_events(event_files);
  }
  run.path = path;
  return run;
}

struct Entries {
  std::vector<fs::path> directories, event_files;
};

// What is there of it, and the error that hid the rest.
Entries list_directory(const fs::path& dir, std::error_code& error) {
  Entries entries;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone)) entries.directories.push_back(it->path());
    if (it->is_regular_file(gone) && is_event_file(it->path()))
      entries.event_files.push_back(it->path());
  }
  std::sort(entries.directories.begin(), entries.directories.end());
  std::ranges::stable_partition(entries.directories, [](const fs::path& directory) {
    std::error_code gone;
    return !fs::is_symlink(directory, gone);  // a run is called by its own name
  });
  std::sort(entries.event_files.begin(), entries.event_files.end());
  return entries;
}

struct Found {
  std::vector<RunLog> runs;
  std::set<fs::path> places;  // of the runs, each of which may be met again by a link
};

void add_run(const fs::path& path, const std::vector<fs::path>& event_files, Found& found) {
  std::error_code gone;
  if (found.places.insert(fs::weakly_canonical(path, gone)).second)
    found.runs.push_back(read_path(path, event_files));
}

// Below the directory that was named, what can't be read is no run: one that saves meanwhile
// renames its checkpoints.
enum class Named { kByUser, kBelow };

// False where there is none.
bool find_runs(const fs::path& dir, int levels, Named named, Found& found) {
  std::error_code error;
  if (fs::is_regular_file(dir / kMetricsFile, error))
    return add_run(dir / kMetricsFile, {}, found), true;
  Entries entries = list_directory(dir, error);
  check_io(named == Named::kBelow || !error, "cannot read the directory ", dir.string(), ": ",
           describe_errno(error.value()));
  bool any = !entries.event_files.empty();
  if (any) add_run(dir, entries.event_files, found);
  if (levels == 0) return any;
  for (const fs::path& below : entries.directories)
    any |= find_runs(below, levels - 1, Named::kBelow, found);
  return any;
}

// A run is named after its directory, with as many parents as tell it from the others.
std::string name_of(const fs::path& path, int num_parts) {
  std::vector<std::string> parts;
  fs::path dir = path.filename() == kMetricsFile ? path.parent_path() : path;
  for (const fs::path& part : fs::absolute(dir).lexically_normal())
    if (!part.empty() && part != "/") parts.push_back(part.string());
  std::string name;
  size_t first = parts.size() - std::min(parts.size(), static_cast<size_t>(num_parts));
  for (size_t i = first; i < parts.size(); ++i) name += (i > first ? "/" : "") + parts[i];
  return name;
}

void name_runs(std::vector<RunLog>& runs) {
  for (int num_parts = 1; num_parts < 20; ++num_parts) {
    std::set<std::string> names;
    for (RunLog& run : runs) names.insert(run.name = name_of(run.path, num_parts));
    if (names.size() == runs.size()) return;
  }
}

}  // namespace

RunLog read_metrics(std::string_view text) {
  RunLog run;
  Collector points;
  int64_t number = 0;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    ++number;
    bool is_last = end == std::string_view::npos;
    text = is_last ? std::string_view() : text.substr(end + 1);
    // The last line may be in the middle of being written.
    if (!line.empty() && !read_line(line, points) && !is_last)
      warn(run, concat("line ", number, " is not readable and is left out"));
  }
  run.series = points.take();
  return run;
}

std::optional<int64_t> last_step(std::string_view text) {
  LastStep last;
  while (!text.empty() && !last.get()) {
    size_t begin = text.rfind('\n') + 1;  // npos + 1 is 0
    read_line(text.substr(begin), last);
    text = text.substr(0, begin > 0 ? begin - 1 : 0);
  }
  return last.get();
}

RunLog read_events(const std::vector<fs::path>& files) {
  RunLog run;
  Collector points;
  for (const fs::path& path : files) {
    MappedFile mapped(path, MappedFile::Access::kSequential);
    EventFile file = read_event_file(mapped.text());
    if (!file.damage.empty()) warn(run, path.filename().string() + ": " + file.damage);
    for (const Event& event : file.events) {
      if (event.session_start) points.start(event.step);
      for (const auto& [tag, value] : event.scalars)
        points.add(tag, {event.step, event.time, value});
    }
  }
  run.series = points.take();
  return run;
}

std::vector<RunLog> load_runs(const std::vector<std::string>& paths) {
  check_usage(!paths.empty(), "give at least one run. See neox-plot --help.");
  Found found;
  for (const std::string& path : paths) {
    std::error_code error;
    check_io(is_found(path), "there is no ", path,
             "; a run is a metrics.jsonl, a TensorBoard event file, or a directory with one");
    check_io(fs::is_directory(path, error) || fs::is_regular_file(path, error), path,
             " is a pipe or a device; write what comes out of it to a file first");
    bool any = true;
    if (fs::is_directory(path, error)) {
      any = find_runs(path, kMaxLevels, Named::kByUser, found);
    } else {
      std::vector<fs::path> event_files;
      if (is_event_file(path)) event_files.push_back(path);
      add_run(path, event_files, found);
    }
    check_io(any, "neither a ", kMetricsFile, " nor a TensorBoard event file (*.tfevents.*) in ",
             path, " or up to ", kMaxLevels, " levels below it");
  }
  std::vector<RunLog>& runs = found.runs;
  name_runs(runs);
  for (const RunLog& run : runs)
    for (const std::string& warning : run.warnings) log_warning(run.path.string(), ": ", warning);
  return std::move(runs);
}

}  // namespace neox
