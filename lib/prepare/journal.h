// What a rank notes down beside the output while it works, so that the next run goes on there after
// this one was killed. Where it says that tokens are in a file, they are there, even if the machine
// stopped. A killed run may have processes left that still write: a run with the same identity
// writes the same bytes to the same places, so they do no harm.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_builder.h"
#include "prepare/blocks.h"
#include "prepare/prepare.h"
#include "prepare/tally.h"

namespace neox {

// All that decides the bytes of the output and where each rank has which of them.
using RunIdentity = std::map<std::string, std::string>;

// In the names of the files.
inline constexpr const char* kJournal = ".tmp-journal-";

// Reads the tokenizer; the files are as they were found, by this process. Throws Error (74).
RunIdentity identity_of(const PrepareOptions& options, const InputFiles& input, int ranks);

// A place between two blocks of the share of a rank.
struct SharePoint {
  std::optional<ReadPosition> place = {};  // none: nothing of the share was read
  int64_t input_bytes = 0;                 // read up to here
  Tally tally = {};
  std::vector<DatasetState> states = {};  // of each dataset
  bool finished = false;                  // nothing is left to read
};

class Journal {
 public:
  Journal(const PrepareOptions& options, int rank, RunIdentity identity);

  // What a run with the same identity has saved last. Where another one has left a journal, says in
  // the log that it is not used and why.
  std::optional<SharePoint> find() const;
  // Replaces what was saved; durable when it returns. Throws Error (74).
  void save(const SharePoint& point) const;
  void remove() const;
  // What that of a rank is called, and until it is whole.
  static std::vector<fs::path> files(const PrepareOptions& options, int rank);

 private:
  fs::path path_;
  RunIdentity identity_;
};

// Removes the journals of ranks from `first` on.
void remove_journals(const PrepareOptions& options, int first);

}  // namespace neox
