// What a run will need, by arithmetic alone: parameters, memory, work, disk. Nothing is built.
#pragma once
#include <optional>
#include <string>

#include "config/config.h"

namespace neox {

// Elements of logits that exist at one time, on a CPU and on a GPU: the head works through its
// tokens in chunks of that size.
inline constexpr int64_t kLogitElements = 13 << 20, kGpuLogitElements = 32 * kLogitElements;

struct Estimate {
  // Of the whole model.
  int64_t embedding = 0, embedding_norm = 0, positions = 0, blocks = 0, final_norm = 0, head = 0,
          parameters = 0;

  int64_t world = 0, data_ranks = 0;
  BatchPlan batch;
  int64_t tokens_per_step = 0;
  double flops_per_token = 0;  // train_flops_per_token()

  // Bytes on the rank that needs most.
  int64_t used = 0;             // of the parameters, what a token goes through
  int64_t rank_parameters = 0;  // elements
  int64_t rank_chunk = 0;       // of these, whose state this rank has
  int64_t parameter_bytes = 0, reference_bytes = 0, gradient_bytes = 0, master_bytes = 0,
          moment_bytes = 0;
  int64_t activation_bytes = 0, logit_bytes = 0, memory_bytes = 0;
  int64_t copy_bytes = 0;  // of the state, on the host, while it is saved; not in memory_bytes
  int64_t activation_bytes_kept = 0;        // without recomputation
  int64_t activation_bytes_recomputed = 0;  // with it

  // Of the whole run, on disk.
  int64_t checkpoint_bytes = 0, num_checkpoints = 0, num_kept = 0;
  int64_t files_per_checkpoint = 0, num_files = 0, disk_bytes = 0;
  std::optional<int64_t> free_bytes;
  int64_t present_bytes = 0;  // of the run's checkpoints, there already
};

// `vocab` is the padded one. Throws Error (64) where the world does not fit the layout or the
// batch. free_bytes: of the file system of `save`, where it is known. frozen: of a resumed run.
Estimate estimate(const Config& config, int64_t vocab, int64_t world,
                  std::optional<int64_t> free_bytes = std::nullopt,
                  std::optional<FrozenBatch> frozen = std::nullopt);

// What to do where free_bytes is less than the run takes.
std::string room_advice(const Config& config, const Estimate& e);

// Work of training on one token, forward and backward: 6 N + 6 L h T, N being the parameters of
// blocks and head, tied or not, attention counted causal. vocab must be known.
double train_flops_per_token(const ModelConfig& model);

// Of a number of the computation.
int64_t element_bytes(Precision precision);
// Of a gradient, as it is accumulated.
int64_t gradient_bytes(const PrecisionConfig& precision);

// The fewest ranks that the layout takes, and the batch where all its three numbers are given.
int64_t fewest_ranks(const Config& config);

// The text of --dry-run.
std::string render(const Estimate& estimate, const Config& config);

}  // namespace neox
