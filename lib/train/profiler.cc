#include "train/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdlib>
#include <map>
#include <span>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace neox {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Kineto has one session for a process, and ranks may be threads.
std::atomic<int> profiled_rank{-1};

torch::profiler::impl::ProfilerConfig kineto_config() {
  constexpr bool kShapes = true, kMemory = true;
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO,
                                               kShapes, kMemory);
}

std::set<ActivityType> activities(bool gpu) {
  if (gpu) return {ActivityType::CPU, ActivityType::CUDA};
  return {ActivityType::CPU};
}

// torch::autograd::CppNode<neox::(anonymous namespace)::Norms>, a node of our own, is shown as
// "gradient of Norms".
std::string shown_name(const std::string& name) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<";
  if (!name.starts_with(kNode)) return name;
  std::string function = name.substr(kNode.size());
  function.resize(std::min(function.size(), function.find_first_of("<>")));
  size_t scope = function.rfind("::");
  return "gradient of " + (scope == std::string::npos ? function : function.substr(scope + 2));
}

// The spans on the processor, or those on the device.
std::vector<Span> spans_of(const kineto::ProfilerResult& result, bool device) {
  std::vector<Span> spans;
  for (const auto& event : result.events()) {
    if ((event.deviceType() != c10::DeviceType::CPU) != device || event.isAsync() ||
        event.endNs() <= event.startNs())
      continue;
    uint64_t thread =
        device ? static_cast<uint64_t>(event.deviceResourceId()) : event.startThreadId();
    spans.push_back({shown_name(event.name()), thread, event.startNs(), event.endNs()});
  }
  return spans;
}

// A run of days that was to be looked at says at its start, not by a file that is not there, what
// is asked of it in vain.
void warn_of_no_trace(const Config& config, const StepProfiler::Of& of) {
  const ProfileConfig& profile = config.train.profile;
  if (profile.stop <= profile.start) return;
  int64_t first = of.first_iteration;
  if (first > profile.start && first < config.train.iters)
    log_warning("profile: the run goes on from step ", first, ", behind profile_step_start, ",
                profile.start, ": there is no trace; set profile_step_start to ", first,
                " or more, and profile_step_stop to more than that");
  std::vector<std::string> absent;
  for (int64_t rank : profile.ranks)
    if (rank < 0 || rank >= of.ranks) absent.push_back(concat(rank));
  if (absent.empty() && !profile.ranks.empty()) return;
  log_warning("profile: profile_ranks names ", absent.empty() ? "no rank" : join(absent, ", "),
              ", but the run has ", counted(of.ranks, "rank"),
              ", from 0 on: set profile_ranks to those of them that are to have a trace");
}

// A trace that cannot be written is no reason to end a run.
bool save_trace(kineto::ProfilerResult& result, const fs::path& file) {
  try {
    make_directories(file.parent_path());
    result.save(file.string());
    check_io(fs::is_regular_file(file) && fs::file_size(file) > 0,
             "no room, or no right to write there");
    return true;
  } catch (const std::exception& e) {
    log_warning("the trace ", file.string(), " could not be written: ", e.what());
    return false;
  }
}

}  // namespace

StepProfiler::StepProfiler(const Config& config, Of of)
    : config_(config.train.profile),
      directory_(config.train.log_dir.empty() ? "." : config.train.log_dir),
      of_(of) {
  if (of.rank == 0) warn_of_no_trace(config, of);
  chosen_ = config_.stop > config_.start &&
            std::ranges::find(config_.ranks, of.rank) != config_.ranks.end();
  if (!chosen_) return;
  int nobody = -1;
  check_usage(profiled_rank.compare_exchange_strong(nobody, of.rank), config.where("profile_ranks"),
              ": profile_ranks names the ranks ", nobody, " and ", of.rank,
              ", which are threads of one process; name one of them, or start ranks as processes");
}

StepProfiler::~StepProfiler() {
  if (running_) kineto::disableProfiler();
  if (chosen_) profiled_rank = -1;
}

bool StepProfiler::due(int64_t done) const {
  return config_.stop > config_.start && (done == config_.start || done == config_.stop);
}

void StepProfiler::at(int64_t done) {
  if (!chosen_ || !due(done)) return;
  if (running_) {
    stop(done);
  } else if (done == config_.start) {
    started_at_ = done;
    start();
  }
}

void StepProfiler::finish(int64_t done) {
  if (running_) stop(done);
  if (chosen_ && done <= config_.start)
    log_warning("profile: the run ended at step ", done, ", before profile_step_start, ",
                config_.start, ": there is no trace");
}

void StepProfiler::start() {
  // To Kineto it is an error that there is no GPU.
  if (!of_.gpu) setenv("KINETO_LOG_LEVEL", "9", false);
  // Of memory that was taken before LibTorch warns when it is freed, which is no news to who asked
  // for a profile of some steps.
  quiet_.emplace(QuietLibTorch::Least::kError);
  kineto::prepareProfiler(kineto_config(), activities(of_.gpu));
  kineto::enableProfiler(kineto_config(), activities(of_.gpu), {});
  running_ = true;
}

void StepProfiler::stop(int64_t done) {
  running_ = false;
  auto result = kineto::disableProfiler();
  quiet_.reset();
  fs::path file = directory_ / concat("trace_steps_", started_at_ + 1, "-", done,
                                      printed("_rank%05d.json", of_.rank));
  bool written = save_trace(*result, file);
  constexpr size_t kRows = 12;
  std::string tables = time_table("operation", self_times(spans_of(*result, false)), kRows);
  if (of_.gpu) tables += "\n" + time_table("kernel", self_times(spans_of(*result, true)), kRows);
  log_info("profile of steps ", started_at_ + 1, " to ", done, " of rank ", of_.rank, ": ",
           written ? concat(file.string(), " (open it in https://ui.perfetto.dev)") : "no trace",
           "\n", tables);
}

std::vector<SelfTime> self_times(std::vector<Span> spans) {
  std::ranges::sort(spans, [](const Span& a, const Span& b) {
    return std::tuple(a.thread, a.start, b.end) < std::tuple(b.thread, b.start, a.end);
  });
  std::map<std::string, SelfTime> times;
  std::vector<const Span*> open;
  for (const Span& span : spans) {
    while (!open.empty() && (open.back()->thread != span.thread || open.back()->end <= span.start))
      open.pop_back();
    double seconds = static_cast<double>(span.end - span.start) / 1e9;
    if (!open.empty()) times[open.back()->name].seconds -= seconds;
    times[span.name].seconds += seconds;
    ++times[span.name].calls;
    open.push_back(&span);
  }
  std::vector<SelfTime> all;
  for (auto& [name, time] : times) all.push_back({name, time.calls, time.seconds});
  std::ranges::stable_sort(all, std::greater<>(), &SelfTime::seconds);
  return all;
}

std::string time_table(std::string_view title, const std::vector<SelfTime>& times, size_t rows) {
  double total = 0;
  for (const SelfTime& time : times) total += time.seconds;
  std::string table =
      concat(printed("  %12s  %7s  %8s  ", "time itself", "share", "calls"), title, "\n");
  for (const SelfTime& time : std::span(times).first(std::min(rows, times.size()))) {
    table += printed("  %10.3f s  %5.1f %%  %8" PRId64 "  ", time.seconds,
                     100 * time.seconds / std::max(total, 1e-9), time.calls) +
             time.name + "\n";
  }
  return table + printed("  %10.3f s  in all", total);
}

}  // namespace neox
