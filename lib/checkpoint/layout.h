// Names and small texts in a checkpoint directory; docs/formats.md has their grammar.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/catalog.h"
#include "checkpoint/train_state.h"

namespace neox {

inline constexpr const char* kIndexFile = "index.h5";
inline constexpr const char* kStateFile = "train_state.json";
inline constexpr const char* kCompleteFile = "COMPLETE";
inline constexpr const char* kLatestFile = "latest";
inline constexpr const char* kClaimFile = "owner";
inline constexpr int64_t kFormatVersion = 1;

std::string step_name(int64_t iteration);  // "global_step1000"
std::string temporary_name(int64_t iteration, const std::string& life);
std::string rank_file_name(int rank);  // "rank_00003.h5"
// 1000 for "global_step1000"; nothing for other names.
std::optional<int64_t> step_of(std::string_view name);

// False also where it cannot be told.
bool is_dir(const fs::path& path);
bool is_there(const fs::path& path);

// COMPLETE: the sizes and checksums of the other two, and its own.
std::string complete_text(std::string_view index, std::string_view state);
// Throws unless `text` is a COMPLETE of these two; `dir` is for messages.
void check_complete(const fs::path& dir, std::string_view text, std::string_view index,
                    std::string_view state);

// A checkpoint whose index and train state are undamaged and whose files are there in full size.
struct Opened {
  fs::path dir;
  TrainState state;
  Catalog catalog;
};
// Throw naming what is missing or damaged: of all but the rank files; a rank file's size.
Opened open_complete(const fs::path& dir);
void check_rank_files(const Opened& opened);

// As far as the directory can be read: others may be removing it, or the storage may fail.
std::vector<fs::path> entries_of(const fs::path& dir);

// "a Megatron checkpoint (FILE)", where the directory holds one of another program; else "".
std::string foreign_in(const fs::path& dir);

// The newest complete checkpoint beside `dir`, other than it, as the end of a message.
std::string newest_beside(const fs::path& dir);
// Throws for a checkpoint that could not be opened or read what was met there, and what to do: go
// on from the newest other one, or, where it is Unreadable, start again.
[[noreturn]] void fail_with_advice(const fs::path& dir, const Error& met);

// The life that has claimed the run directory; "" where none has.
std::string owner_of(const fs::path& run_dir);

// Gives the whole checkpoint in `temporary` its final name; one of that name is replaced, at once
// where the file system can exchange names.
void publish(const fs::path& temporary, const fs::path& final_dir, const std::string& life);

// At the start of the life that owns the directory, before it saves: saves and removals that
// earlier lives did not end would take the room that the first save needs. Never throws.
void remove_leftovers(const fs::path& run_dir, const std::string& life);

}  // namespace neox
