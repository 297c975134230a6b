#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/writing.h"

namespace neox {
namespace {

// A save that has written nothing for that long is dead.
constexpr auto kStale = std::chrono::hours(24);

fs::path deleting_name(const fs::path& dir, const std::string& life) {
  return dir.parent_path() / concat(dir.filename().string(), ".deleting-", life);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  fail(Exit::kIo, "cannot rename ", from.string(), " to ", to.string(), ": ",
       describe_errno(errno));
}

bool exchange_names(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

void remove_logged(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  // Another process may be removing it as well.
  if (error && is_there(path))
    log_warning("cannot remove ", path.string(), ": ", describe_errno(error.value()),
                "; remove it by hand");
}

bool is_stale(const fs::path& path) {
  std::error_code error;
  auto newest = fs::last_write_time(path, error);
  for (const fs::path& entry : entries_of(path)) {
    std::error_code gone;
    newest = std::max(newest, fs::last_write_time(entry, gone));
  }
  return newest < fs::file_time_type::clock::now() - kStale;
}

// What another life wrote, once this one owns the directory, can never be published.
bool is_fenced(const fs::path& run_dir, const std::string& name, const std::string& life) {
  if (name.ends_with(concat(".tmp-", life))) return false;
  return owner_of(run_dir) == life;
}

// 10 for "global_step10.tmp-77.0" with mark ".tmp-"; nothing for other names.
std::optional<int64_t> step_marked(const std::string& name, const char* mark) {
  size_t at = name.find(mark);
  return at == std::string::npos ? std::nullopt : step_of(std::string_view(name).substr(0, at));
}

void drop(const fs::path& dir, const std::string& life) {
  fs::path doomed = deleting_name(dir, life);
  if (::rename(dir.c_str(), doomed.c_str()) == 0)
    remove_logged(doomed);
  else if (errno != ENOENT)
    log_warning("cannot drop the old checkpoint ", dir.string(), ": ", describe_errno(errno));
}

}  // namespace

std::vector<fs::path> entries_of(const fs::path& dir) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  return entries;
}

void publish(const fs::path& temporary, const fs::path& final_dir, const std::string& life) {
  fs::path old = deleting_name(final_dir, life);
  if (!is_dir(final_dir)) {
    rename_or_throw(temporary, final_dir);
  } else if (exchange_names(temporary, final_dir)) {
    // The old one now has the temporary name; prune() finds it under either.
    (void)::rename(temporary.c_str(), old.c_str());
  } else {
    remove_logged(old);
    rename_or_throw(final_dir, old);
    try {
      rename_or_throw(temporary, final_dir);
    } catch (const Error&) {
      (void)::rename(old.c_str(), final_dir.c_str());  // the old one stays
      throw;
    }
  }
  sync_directory(final_dir.parent_path());
}

void prune(const SaveOptions& options, int64_t iteration) try {
  const fs::path& run_dir = options.dir;
  const std::string& life = options.life;
  std::set<int64_t> complete;
  for (const fs::path& entry : entries_of(run_dir)) {
    std::string name = entry.filename().string();
    if (step_marked(name, ".deleting-") || name == temporary_name(iteration, life))
      remove_logged(entry);
    else if (step_marked(name, ".tmp-") && is_fenced(run_dir, name, life))
      remove_logged(entry);
    else if ((step_marked(name, ".tmp-") || name.starts_with("latest.tmp-")) && is_stale(entry))
      remove_logged(entry);
    else if (auto step = step_of(name);
             step && step != iteration && is_there(entry / kCompleteFile))
      complete.insert(*step);
  }
  if (options.keep_last <= 0) return;
  auto left = static_cast<int64_t>(complete.size()) + 1;  // with this one
  for (auto step = complete.begin(); left > options.keep_last && step != complete.end();
       ++step, --left)
    if (!options.needed(*step)) drop(run_dir / step_name(*step), life);
} catch (const std::exception& e) {
  log_warning("older checkpoints stay in ", options.dir.string(), ": ", e.what());
}

void remove_leftovers(const fs::path& run_dir, const std::string& life) try {
  std::optional<int64_t> newest;
  for (const fs::path& entry : entries_of(run_dir))
    if (auto step = step_of(entry.filename().string()); is_there(entry / kCompleteFile))
      newest = std::max(newest, step);
  for (const fs::path& entry : entries_of(run_dir)) {
    std::string name = entry.filename().string();
    // One that was put aside for another of its step, which never came, may be all there is.
    auto removed = step_marked(name, ".deleting-");
    // Where lives have the same name at each start, a save under that name is an earlier one's.
    if (removed ? removed <= newest : step_marked(name, ".tmp-") && owner_of(run_dir) == life)
      remove_logged(entry);
  }
} catch (const std::exception& e) {
  log_warning("what earlier runs have left stays in ", run_dir.string(), ": ", e.what());
}

}  // namespace neox
