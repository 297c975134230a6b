#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "launch/process_info.h"

namespace neox {
namespace {

std::vector<std::string> names_in(const fs::path& dir) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  bool removed = error == std::errc::no_such_file_or_directory;
  check_io(!error || removed, "cannot list ", dir.string(), ": ", describe_errno(error.value()));
  std::ranges::sort(names);
  return names;
}

struct Foreign {
  const char* program;
  std::string_view begin, middle, end;  // of the name of a file that gives it away
};

constexpr Foreign kForeign[] = {
    {"GPT-NeoX (DeepSpeed)", "mp_rank_", "", "_model_states.pt"},
    {"GPT-NeoX (DeepSpeed)", "layer_", "-model_", "-model_states.pt"},
    {"GPT-NeoX (DeepSpeed)", "", "zero_pp_rank_", ".pt"},
    {"Megatron", "latest_checkpointed_iteration.txt", "", ""},
    {"Megatron", "model_optim_rng.pt", "", ""},
    {"Hugging Face", "model", "", ".safetensors"},
    {"Hugging Face", "pytorch_model", "", ".bin"},
};

// What looks like a checkpoint in a run directory.
struct RunDir {
  fs::path dir;
  std::map<int64_t, fs::path, std::greater<>> steps;  // newest first; complete or not
  std::vector<std::string> foreign;
  std::vector<std::string> unfinished;  // saves and removals that were cut off
  std::string latest;
};

RunDir scan(const fs::path& dir) {
  RunDir run{.dir = dir, .steps = {}, .foreign = {}, .unfinished = {}, .latest = {}};
  auto note = [&](const std::string& foreign) {
    if (!foreign.empty()) run.foreign.push_back(foreign);
    return !foreign.empty();
  };
  note(foreign_in(dir));
  for (const std::string& name : names_in(dir)) {
    fs::path path = dir / name;
    std::optional<int64_t> step = step_of(name);
    if (step && type_of(path) == fs::file_type::directory && !note(foreign_in(path)))
      run.steps[*step] = path;
    if (name.starts_with("global_step") &&
        (name.find(".tmp-") != std::string::npos || name.find(".deleting-") != std::string::npos))
      run.unfinished.push_back(name);
  }
  run.latest = latest_in(dir);
  return run;
}

// A node that has lost the storage says nothing of the file, and another node may read it: jobs are
// requeued.
Unreadable may_be_whole(const fs::path& dir, const Unreadable& met) {
  std::string text = concat(met.what(), "; storage could not be read on ", host_name(), ", and ",
                            dir.string(), " may be whole, so nothing older is taken in its place: ",
                            "start again when it can be read, or move it away");
  return {met.error(), text, met.lost_storage() ? Exit::kPeerLost : met.exit()};
}

// What is missing or damaged of it, or "". Throws Unreadable where that cannot be told.
std::string fault_of(const fs::path& dir) {
  try {
    check_rank_files(open_complete(dir));
    return "";
  } catch (const Unreadable& e) {
    throw may_be_whole(dir, e);  // which is no fault of its own
  } catch (const Error& e) { return e.what(); }
}

bool is_whole(const fs::path& dir) {
  try {
    return fault_of(dir).empty();
  } catch (const Unreadable&) { return false; }
}

// A run that goes on removes what it does not keep, also under those who read it.
bool was_removed(const fs::path& dir) {
  std::error_code error;
  return !fs::exists(dir, error) && !error;
}

std::string list_steps(const RunDir& run) {
  std::vector<std::string> names;
  for (const auto& [step, path] : run.steps) names.push_back(std::to_string(step));
  return names.empty() ? "it holds none" : "it holds those of iterations " + join(names, ", ");
}

// The newest that can be opened, and what is wrong with those before it.
std::optional<fs::path> newest_whole(const RunDir& run, std::vector<std::string>& faults) {
  faults.clear();
  for (const auto& [step, path] : run.steps) {
    std::string fault = fault_of(path);
    if (fault.empty()) return path;
    faults.push_back(fault);
  }
  return std::nullopt;
}

// One that was whole when it made room for another of its step, which never came: a crash between
// two renames, where the file system cannot exchange names. Only where nothing as new is there.
std::optional<fs::path> newest_put_aside(const RunDir& run) {
  std::map<int64_t, fs::path, std::greater<>> aside;
  for (const std::string& name : run.unfinished)
    if (size_t mark = name.find(".deleting-"); mark != std::string::npos)
      if (auto step = step_of(std::string_view(name).substr(0, mark)))
        aside[*step] = run.dir / name;
  for (const auto& [step, path] : aside) {
    if (!run.steps.empty() && run.steps.begin()->first >= step) break;
    if (is_whole(path)) return path;
  }
  return std::nullopt;
}

[[noreturn]] void fail_foreign(const RunDir& run) {
  fail(Exit::kIo, run.dir.string(), " holds ", run.foreign[0],
       "; convert it with neox-convert --to neox.cpp ", run.dir.string(),
       " NEW, or name another directory");
}

fs::path find_iteration(const RunDir& run, int64_t iteration) {
  auto found = run.steps.find(iteration);
  fs::path dir = run.dir / step_name(iteration);
  if (found == run.steps.end() && is_dir(dir)) fail_foreign(run);
  check_io(found != run.steps.end(), run.dir.string(), " holds no checkpoint of iteration ",
           iteration, "; ", list_steps(run));
  std::string fault = fault_of(dir);
  check_io(fault.empty(), fault, newest_beside(dir));
  return dir;
}

// `latest` is written behind a checkpoint; where it is newer than that, and still says the same,
// somebody has changed it.
bool was_changed(const RunDir& run, const fs::path& chosen) {
  std::error_code error;
  fs::path latest = run.dir / kLatestFile;
  auto written = fs::last_write_time(latest, error);
  return !error && written > fs::last_write_time(chosen / kCompleteFile, error) && !error &&
         trim(read_file(latest)) == run.latest;
}

void explain_choice(const RunDir& run, const fs::path& chosen) {
  std::string name = chosen.filename().string();
  if (!run.latest.empty() && run.latest != name && was_changed(run, chosen))
    log_warning("`latest` in ", run.dir.string(), " names ", run.latest, ", but ", name,
                " is the newest complete checkpoint and is taken");
  for (const std::string& foreign : run.foreign)
    log_warning(foreign, " is passed over; ", name, " is taken");
}

}  // namespace

std::string foreign_in(const fs::path& dir) {
  for (const std::string& name : names_in(dir))
    for (const Foreign& f : kForeign)
      if (name.starts_with(f.begin) && name.ends_with(f.end) &&
          name.find(f.middle) != std::string::npos)
        return concat("a ", f.program, " checkpoint (", (dir / name).string(), ")");
  return "";
}

std::string newest_beside(const fs::path& dir) {
  fs::path parent = fs::absolute(dir).lexically_normal();
  if (!parent.has_filename()) parent = parent.parent_path();
  std::string own = parent.filename().string();
  parent = parent.parent_path();
  std::map<int64_t, fs::path, std::greater<>> others;
  for (const fs::path& entry : entries_of(parent)) {
    std::string name = entry.filename().string();
    if (auto step = step_of(name); step && name != own) others[*step] = entry;
  }
  bool gone = was_removed(dir);
  for (const auto& [step, path] : others)
    if (is_whole(path))
      return concat(gone ? "; it was removed meanwhile; " : "; ",
                    "the newest other complete checkpoint there is ", path.string(),
                    gone ? ": start again" : ": go on from it by moving the damaged one away");
  return "; there is no other complete checkpoint beside it";
}

void fail_with_advice(const fs::path& dir, const Error& met) {
  const auto* unreadable = dynamic_cast<const Unreadable*>(&met);
  // On NFS a file that is removed while it is read is ESTALE.
  if (unreadable && !was_removed(dir)) throw may_be_whole(dir, *unreadable);
  fail(met.exit(), met.what(), newest_beside(dir));
}

namespace {

// Of a directory without a checkpoint that can be taken, for those faults: throws unless a run may
// begin there.
void check_is_free(const fs::path& run_dir, const RunDir& run,
                   const std::vector<std::string>& faults) {
  check_io(faults.empty(), "no checkpoint in ", run_dir.string(),
           " can be used: ", join(faults, "; "),
           "; put a whole copy there, or move what is there away, to start from the beginning");
  if (!run.foreign.empty()) fail_foreign(run);
  check_io(run.latest.empty(), (run_dir / kLatestFile).string(), " names ", run.latest,
           ", which is not there",
           run.unfinished.empty() ? "" : "; what is left is " + join(run.unfinished, ", "),
           "; put it back, or remove `latest`, to start from the beginning");
  for (const std::string& name : run.unfinished)
    log_warning((run_dir / name).string(), " is what was left of a checkpoint; it is passed over");
}

}  // namespace

std::optional<fs::path> find_checkpoint(const fs::path& run_dir, std::optional<int64_t> iteration) {
  std::error_code error;
  bool exists = fs::exists(run_dir, error);
  check_io(!error, "cannot look into ", run_dir.string(), ": ", describe_errno(error.value()));
  check_io(exists || !iteration, run_dir.string(), " does not exist, so it holds no checkpoint of ",
           "iteration ", iteration.value_or(0));
  if (!exists) return std::nullopt;
  check_io(is_dir(run_dir), run_dir.string(), " is not a directory");
  check_io(!is_there(run_dir / kCompleteFile), run_dir.string(),
           " is itself a checkpoint; name the directory that holds it");
  RunDir run = scan(run_dir);
  if (iteration) return find_iteration(run, *iteration);
  std::vector<std::string> faults;
  std::optional<fs::path> found = newest_whole(run, faults);
  // A run that goes on may have removed them meanwhile, behind newer ones.
  while (!found) {
    RunDir now = scan(run_dir);
    if (now.steps == run.steps) break;
    run = std::move(now);
    found = newest_whole(run, faults);
  }
  // Looked for again, since a run that goes on puts aside what it removes.
  if (newest_put_aside(run))
    if (auto aside = newest_put_aside(scan(run_dir))) {
      log_warning(aside->string(), " was put aside for another of its step that is not there; it ",
                  "is whole and is taken");
      return aside;
    }
  if (found) {
    for (const std::string& newer : faults) log_warning(newer, "; it is passed over");
    explain_choice(run, *found);
    return found;
  }
  check_is_free(run_dir, run, faults);
  return std::nullopt;
}

std::string latest_in(const fs::path& run_dir) {
  fs::path path = run_dir / kLatestFile;
  bool none = type_of(path) == fs::file_type::not_found;
  std::string text = none ? "" : read_file(path);
  return std::string(trim(text));
}

fs::path checkpoint_in(const fs::path& dir) {
  if (is_there(dir / kCompleteFile)) {
    if (step_of(dir.filename().string())) return dir;
    fs::path whole = fs::absolute(dir).lexically_normal();  // "global_step10/", "."
    return whole.has_filename() ? whole : whole.parent_path();
  }
  check_io(fs::exists(dir), dir.string(), ": no such file or directory");
  check_io(!step_of(dir.filename().string()), dir.string(), " has no ", kCompleteFile,
           ": its save was interrupted; give the directory above it for the newest whole one");
  auto found = find_checkpoint(dir);
  check_io(found.has_value(), dir.string(),
           ": no checkpoint there; give the `save` directory of a run, or a global_step directory "
           "in it");
  return *found;
}

}  // namespace neox
