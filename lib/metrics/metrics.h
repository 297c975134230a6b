// What a run says about itself, for programs and for TensorBoard: <dir>/metrics.jsonl, one JSON
// object a line (docs/formats.md), and, where a TensorBoard directory is configured, the same
// scalars in an event file there. One thread of one rank has a Metrics that writes; other ranks
// have one with no directory, which does nothing.
//
//   {"step":30,"time":1700000000.25,"train/lm_loss":3.217,"train/learning_rate":0.0006}
//   {"step":31,"time":1700000001.31,"train/lm_loss":null,"not_finite":{"train/lm_loss":"nan"}}
//   {"step":31,"time":1700000001.40,"text":{"samples":"Once upon"}}
//   {"step":21,"time":1700000100.00,"event":"start","run":"/fsx/runs/first"}
//
// The last line begins another life of the run: what older lines say of step 21 and later is void.
// Apart from that, the last value of a name for a step counts. A value that is not finite is null
// there and "nan", "inf" or "-inf" under not_finite, so that every JSON reader takes the file.
//
// Where a run for Weights & Biases is configured, the scalars go to its file in `dir` too.
//
// Names, those of GPT-NeoX (megatron/logging.py), so that its dashboards carry over:
//   each step         train/lm_loss  train/learning_rate  train/loss_scale (fp16)
//                     train/grad_norm  train/tokens (seen so far)             (these two are ours)
//   each log interval runtime/samples_per_sec  runtime/iteration_time (s)  runtime/steps_per_sec
//                     runtime/tokens_per_sec  runtime/flops_per_sec_per_gpu
//                     runtime/model_flops_utilization (%, with peak_theoretical_tflops)
//                     norms of tensors (train/diagnostics.h)
//   each checkpoint   runtime/save_time (s that training stood for it; ours)
//   each evaluation   validation/lm_loss  validation/lm_loss_ppl  test/lm_loss  test/lm_loss_ppl
//                     with char_level_ppl, .../lm_loss_char_lvl_ppl and .../bits_per_byte (ours)
//   text              config (the effective one)  samples (generated)
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "metrics/event_file.h"
#include "metrics/wandb_file.h"

namespace neox {

inline constexpr const char* kMetricsFile = "metrics.jsonl";

struct MetricsConfig {
  fs::path dir = {};              // of metrics.jsonl; empty: no such file
  fs::path tensorboard_dir = {};  // empty: no event file
  std::optional<WandbRun> wandb = {};
  fs::path run = {};       // the directory of its checkpoints, by which it is known; or empty
  int64_t first_step = 0;  // the first that this life of the run may write: 0, or resumed step + 1
};

class Metrics {
 public:
  // Makes the directories. Begins a new life in files that are there; where first_step is 0, or the
  // file is of another run, a metrics.jsonl with steps gets the name metrics-N.jsonl first, with a
  // warning. Throws where it
  // cannot write (exit code 74), here and below.
  explicit Metrics(const MetricsConfig& config);

  // May be called several times for a step (training, then validation).
  void write(int64_t step, const Scalars& scalars);
  void text(int64_t step, const std::string& name, const std::string& text);
  // This life of the run ends as it should.
  void finish();
  // What `wandb sync` takes; empty: nothing.
  fs::path wandb_pattern() const;

 private:
  std::unique_ptr<AppendFile> lines_;
  std::unique_ptr<EventFileWriter> events_;
  std::unique_ptr<WandbFileWriter> wandb_;
};

}  // namespace neox
