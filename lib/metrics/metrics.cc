#include "metrics/metrics.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "metrics/run.h"

namespace neox {
namespace {

using Json = nlohmann::ordered_json;

double unix_seconds() {
  using namespace std::chrono;
  auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch());
  return static_cast<double>(now.count()) / 1000;
}

const char* not_finite_name(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// One write for a line, so that a reader never sees a part of it (bytes that are not UTF-8 become
// U+FFFD).
void write_line(AppendFile& file, const Json& line) {
  file.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json scalars_line(int64_t step, double time, const Scalars& scalars) {
  Json line = {{"step", step}, {"time", time}};
  Json not_finite = Json::object();
  for (const auto& [name, value] : scalars) {
    check(!line.contains(name), "metric '", name, "' is given twice for step ", step,
          ", or has a reserved name");
    line[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
    if (!std::isfinite(value)) not_finite[name] = not_finite_name(value);
  }
  if (!not_finite.empty()) line["not_finite"] = std::move(not_finite);
  return line;
}

// TensorBoard shows text as Markdown; indented by four it stays as it is.
std::string as_markdown_code(const std::string& text) {
  std::string code = "    ";
  for (char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

// A process that was killed in a write leaves a part of a line; the next line must not join it.
bool ends_within_line(const fs::path& path) {
  std::error_code absent;
  if (fs::file_size(path, absent) == 0 || absent) return false;
  return MappedFile(path).text().back() != '\n';
}

// Whether what was written last is of another run, which is still where it was.
bool is_of_another(const fs::path& path, const fs::path& run) {
  std::error_code absent;
  if (run.empty() || fs::file_size(path, absent) == 0 || absent) return false;
  MappedFile file(path);
  std::string_view text = file.text();
  size_t start = text.rfind(R"("event":"start")");
  if (start == text.npos) return false;
  size_t begin = text.rfind('\n', start) + 1, end = text.find('\n', start);  // npos + 1 is 0
  Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
  auto run_of_line = line.find("run");
  bool named = run_of_line != line.end() && run_of_line->is_string();
  fs::path other = named ? run_of_line->get<std::string>() : "";
  return !other.empty() && fs::exists(other, absent) && !same_place(other, run);
}

// Steps of an earlier run, which those of this one would make void or mix with, get a file of their
// own.
void set_aside(const fs::path& path, const char* why) {
  std::error_code absent;
  if (!fs::is_regular_file(path, absent)) return;
  std::optional<int64_t> last = last_step(MappedFile(path).text());
  if (!last) return;
  fs::path kept;
  for (int n = 1; kept.empty() || fs::exists(kept); ++n)
    kept = path.parent_path() / concat("metrics-", n, ".jsonl");
  std::error_code error;
  fs::rename(path, kept, error);
  check_io(!error, "cannot give ", path.string(), " of an earlier run the name ", kept.string(),
           ": ", describe_errno(error.value()));
  log_warning(path.string(), " had steps of an earlier run, up to step ", *last, "; ", why,
              ", so they are now in ", kept.filename().string(), ". Give each run its own log_dir");
}

}  // namespace

Metrics::Metrics(const MetricsConfig& config) {
  double now = unix_seconds();
  if (!config.dir.empty()) {
    make_directories(config.dir);
    fs::path path = config.dir / kMetricsFile;
    if (config.first_step == 0)
      set_aside(path, "this run starts afresh");
    else if (is_of_another(path, config.run))
      set_aside(path, "this run is another one");
    bool torn = ends_within_line(path);
    lines_ = std::make_unique<AppendFile>(path, AppendFile::Open::kExtend);
    if (torn) lines_->append("\n");
    Json start = {{"step", config.first_step}, {"time", now}, {"event", "start"}};
    if (!config.run.empty()) start["run"] = fs::absolute(config.run).lexically_normal().string();
    write_line(*lines_, start);
  }
  if (!config.tensorboard_dir.empty()) {
    events_ = std::make_unique<EventFileWriter>(config.tensorboard_dir);
    events_->write({.time = now, .step = config.first_step, .session_start = true});
  }
  if (config.wandb && !config.dir.empty())
    wandb_ = std::make_unique<WandbFileWriter>(
        config.dir, *config.wandb,
        config.first_step == 0 ? WandbFileWriter::Begin::kAnew : WandbFileWriter::Begin::kGoesOn,
        now);
}

void Metrics::write(int64_t step, const Scalars& scalars) {
  if (scalars.empty()) return;
  double now = unix_seconds();
  if (lines_) write_line(*lines_, scalars_line(step, now, scalars));
  if (events_) events_->write({.time = now, .step = step, .scalars = scalars});
  if (wandb_) wandb_->write(step, now, scalars);
}

void Metrics::text(int64_t step, const std::string& name, const std::string& text) {
  double now = unix_seconds();
  if (lines_) write_line(*lines_, {{"step", step}, {"time", now}, {"text", {{name, text}}}});
  if (events_)
    events_->write({.time = now, .step = step, .texts = {{name, as_markdown_code(text)}}});
}

void Metrics::finish() {
  if (wandb_) wandb_->finish();
}

fs::path Metrics::wandb_pattern() const { return wandb_ ? wandb_->pattern() : fs::path(); }

}  // namespace neox
