// Which tokens sample number `id` of a run holds: a pure function of the data files and the config,
// in the order of GPT-NeoX or of Megatron, bit for bit (docs/sample-order.md). Any thread may call
// get().
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace neox {

enum class Split { kTrain, kValid, kTest };

// Of a pair. Samples of one text are chosen.
enum class Answer { kChosen, kRejected };

// What is asked of each split: the number of samples enters the shuffle (see reference formulas in
// docs/sample-order.md).
struct SampleCounts {
  int64_t train = 0, valid = 0, test = 0;
};

// Throws Error (74), with the key and its line, where a data set that a run names is not there.
void check_datasets_exist(const Config& config);

class Sampler {
 public:
  // Opens and checks the files; builds the index, or finds it in the file of an earlier start, or
  // waits for the process that builds it. vocab is the model's (padded): a larger token id
  // in the data is an error that names file and position. `poll` is called now and then while the
  // index is built, and may throw.
  Sampler(const DataConfig& config, int64_t seq, int64_t vocab, int32_t end_of_document,
          const SampleCounts& counts, const std::function<void()>& poll = {});
  // Of training, in GPT-NeoX's order: what size() is where no more than one epoch is asked; less
  // than 1 where the data are too short.
  static int64_t samples_of_epoch(const Config& config);
  ~Sampler();
  Sampler(Sampler&&) noexcept;

  // Whether samples of the split are asked and it has documents. Train has them, or the constructor
  // throws.
  bool has(Split split) const;
  // Samples before the order repeats. GPT-NeoX never uses the last sample of an index, so in its
  // order it is one less than the index holds (but at least 1).
  int64_t size(Split split) const;
  // Fills tokens [seq + 1] and weights [seq]: weight t is that of predicting tokens[t + 1]. id may
  // be of any size: it is taken modulo size(split). Returns how many tokens the sample has; the
  // rest is padding.
  int64_t get(Split split, int64_t id, std::span<int64_t> tokens, std::span<float> weights,
              Answer answer = Answer::kChosen) const;
  // Whether the samples of the split have rewards, and that of one: of its (first) document.
  bool has_rewards(Split split) const;
  double reward(Split split, int64_t id) const;
  // The tokens of the sample will be asked for soon: begins to read them from the disk.
  void prefetch(Split split, int64_t id, Answer answer = Answer::kChosen) const;
  // How often the samples that were asked for read the tokens of each of the split's datasets,
  // where samples are packed.
  std::vector<double> passes(Split split) const;
  // Where the tokens of a sample lie, in their order; together seq + 1 tokens, or fewer where the
  // rest is padding.
  struct Piece {
    std::string prefix;  // of the dataset
    int64_t sequence = 0, offset = 0, tokens = 0;
  };
  std::vector<Piece> pieces(Split split, int64_t id, Answer answer = Answer::kChosen) const;
  // Of the split's samples: the lengths, the documents, the weights and the rules that order them;
  // equal for the same data in another place. "": the split has no samples.
  std::string fingerprint(Split split = Split::kTrain) const;
  // Oddities of the data that do not keep it from being used, such as a split without documents;
  // for rank 0 to say once.
  const std::vector<std::string>& warnings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace neox
