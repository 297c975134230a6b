// What a rank makes of its share of the input, block by block: its parts of the datasets, what it
// has counted, and points to go on from. One thread.
#pragma once
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset_builder.h"
#include "prepare/encoded_block.h"
#include "prepare/journal.h"
#include "prepare/prepare.h"

namespace neox {

// A dataset of a run: what of a key it holds.
struct DatasetPlan {
  std::string prefix;
  TokenType type = TokenType::kUint16;
  size_t key = 0;
  Content holds = Content::kTokens;
};

// Of each key those of its tokens, which are of that type, then of its labels, then of its rewards.
// Throws Error (64) where two have one name.
std::vector<DatasetPlan> plan_datasets(const PrepareOptions& options, TokenType type);

// All files that the ranks of a run write: the datasets, and what stands for them until they are
// whole.
std::vector<std::string> files_of_output(const PrepareOptions& options, int ranks);

class Share {
 public:
  // All must outlive the share. Nothing is opened yet.
  Share(const PrepareOptions& options, const std::vector<DatasetPlan>& plan, int rank, int ranks);
  ~Share();

  // Goes on where a run with this identity was interrupted, or begins. Throws Error (74).
  void open(const RunIdentity& identity);
  bool opened() const { return opened_; }  // false where another run has its files
  const SharePoint& point() const { return at_; }
  Tally& tally() { return at_.tally; }

  // At most so many documents, which may change while the share is read.
  void set_limit(int64_t documents) { limit_ = documents; }
  // The next block. Returns whether more is wanted. Throws Error (74), also for a bad line.
  bool add(const Block& block, const EncodedBlock& encoded);
  // Nothing more comes.
  void finish();
  // What was added, which must be before the ranks place what they have.
  void flush_to_disk();
  // Goes back to where there were fewer than so many documents: the rest up to there is to be added
  // again.
  void go_back(int64_t documents);
  void drop_all();

  int64_t num_tokens() const;  // of the keys
  std::vector<DatasetPart> parts() const;
  // Of all ranks, [dataset][rank].
  void place(const std::vector<std::vector<DatasetPart>>& parts);
  void publish();  // rank 0
  // After all is published: nothing is left but the datasets.
  void remove_rest();
  // Nothing of it is to be gone on with.
  void forget();
  // After an error: what is worth it stays for the next run. Returns whether something does.
  bool keep_for_later();

 private:
  using Clock = std::chrono::steady_clock;

  size_t wanted_of(const Block& block, const EncodedBlock& encoded) const;
  void add_to_datasets(const Block& block, const EncodedBlock& encoded, size_t documents);
  void count(const Block& block, const EncodedBlock& encoded, size_t documents);
  void report_bad_lines(const EncodedBlock& encoded);
  bool wanted() const { return at_.tally.documents < limit_; }
  void restore(const SharePoint& point);
  void remember();
  void take_states();
  void save_if_due();
  void wait_for_save();

  const PrepareOptions& options_;
  const std::vector<DatasetPlan>& plan_;
  const int rank_, ranks_;
  std::optional<Journal> journal_;
  std::vector<std::unique_ptr<DatasetBuilder>> builders_;
  SharePoint at_;
  std::atomic<int64_t> limit_ = INT64_MAX;
  // Some points on the way, the first of which is the beginning.
  std::vector<SharePoint> points_;
  int64_t blocks_ = 0, stride_ = 1;
  int64_t replaced_shown_ = 0;
  bool opened_ = false, resumed_ = false;
  Clock::time_point begin_ = Clock::now(), last_save_ = begin_;
  std::atomic<bool> saved_ = false;
  std::future<void> saving_;  // at most one at a time; goes before the builders
};

}  // namespace neox
