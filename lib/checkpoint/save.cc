#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/writing.h"
#include "launch/process_info.h"

namespace neox {
namespace {

// For the slowest rank's file to reach the disk.
constexpr std::chrono::seconds kDeadline = std::chrono::hours(2);

std::string failure(int exit, const char* text) {
  return concat("error ", exit, " on ", host_name(), ": ", text);
}

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
        concat("rank ", rank, " ", replies[rank].substr(word[0].size() + word[1].size() + 2)));
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
  } catch (const std::bad_alloc&) {  // as a disk that is full: there may be room for the next one
    mine = failure(static_cast<int>(Exit::kIo), "out of memory");
  } catch (const std::exception& e) { mine = failure(static_cast<int>(Exit::kInternal), e.what()); }
  std::vector<std::string> replies = control.gather(mine, kDeadline);
  check_replies(replies, what);
  for (std::string& reply : replies) reply.erase(0, 3);
  return replies;
}

void check_same_target(const std::vector<std::string>& replies) {
  for (size_t rank = 1; rank < replies.size(); ++rank)
    check(replies[rank] == replies[0], "rank ", rank, " saves ", replies[rank], ", but rank 0 ",
          replies[0]);
}

// Collective over control. On rank 0, what read_index_part() returned for each rank's file. Each
// rank reads one: on rank 0 alone, all would wait for hundreds of small reads of each file, one by
// one.
std::vector<std::string> read_parts(Control& control, const fs::path& dir, const std::string& what,
                                    const std::vector<std::string>& replies) {
  // That of a rank on another node, where there are several with equally many ranks in a row.
  int apart = control.size() / 2;
  int writer = (control.rank() + apart) % control.size();
  std::string part;
  together(control, what, [&]() -> std::string {
    part = read_index_part(dir, writer, replies[static_cast<size_t>(writer)], control.rank());
    return "";
  });
  std::vector<std::string> parts = control.gather_to_first(part, kDeadline);
  std::ranges::rotate(parts, parts.end() - apart);  // from readers' order to writers'
  return parts;
}

}  // namespace

void save_checkpoint(const SaveOptions& options, std::span<const StateChunk> chunks,
                     const TrainState& state, Control& control) {
  auto start = SaveClock::now();
  bool first = control.rank() == 0;
  fs::path final_dir = options.dir / step_name(state.iteration);
  fs::path temporary = options.dir / temporary_name(state.iteration, options.life);
  std::string what = final_dir.string();
  int64_t bytes = 0;
  try {
    check_same_target(together(control, what, [&] {
      if (first) start_directory(options, state.iteration);
      return temporary.string();
    }));
    auto replies = together(control, what, [&] {
      return write_rank_file(temporary / rank_file_name(control.rank()), chunks);
    });
    auto parts = read_parts(control, temporary, what, replies);
    together(control, what, [&]() -> std::string {
      if (!first) return "";
      TrainState timed = state;  // a life whose only save is its last could tell nobody
      timed.save_seconds = std::chrono::duration<double>(SaveClock::now() - start).count();
      bytes = finish_directory(temporary, parts, timed);
      publish_whole(options, temporary, state.iteration);
      return "";
    });
  } catch (...) {
    std::error_code ignored;
    if (first) fs::remove_all(temporary, ignored);
    throw;
  }
  if (first) log_saved(final_dir, bytes, start);
  // All wait: where many are removed from slow storage, rank 0 would come too late to what follows.
  together(control, what, [&]() -> std::string {
    if (first) prune(options, state.iteration);
    return "";
  });
}

}  // namespace neox
