// The loop of a run: steps, reports, evaluation, saving, stopping.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/background.h"
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "data/sampler.h"
#include "launch/control.h"
#include "tokenizer/tokenizer.h"
#include "train/batches.h"
#include "train/diagnostics.h"
#include "train/profiler.h"
#include "train/reference.h"
#include "train/report.h"
#include "train/signals.h"
#include "train/start.h"
#include "train/step.h"
#include "train/time_limit.h"

namespace neox {

class Pace;

struct TrainerParts {  // all must outlive the trainer
  const Config& config;
  GptNeoX& model;
  const Sampler& sampler;
  const Tokenizer* tokenizer;  // null: no sample_prompts
  Control& control;
  const StopFlag& stop;
  TimeLimit& limit;
  std::string life;  // names temporary files of this life of the job
  int ranks_here;    // that share this machine's memory
  BoundaryRules boundaries = {};
  Reference* reference = nullptr;  // of answers; null: tokens are learnt
  Pace* pace = nullptr;            // null: ranks are threads of this process
  // Called on rank 0: when a checkpoint is whole, and of old ones, from any thread, which stay.
  std::function<void(int64_t step)> saved = [](int64_t) {};
  std::function<bool(int64_t step)> needed = [](int64_t) { return false; };
};

// That of a run's steps, of training and of samples, or none. By default none where several ranks
// train: what goes wrong in a recording of one of them may hang the others. One that was asked for
// insists, so that no rank alone goes on without.
std::unique_ptr<GraphRecorder> recorder_of(const TrainConfig& config, int ranks, at::Device device);

// Collective over control. Throws Error (64) where the checkpoint is of another optimizer, which
// has other states than the chunks that the ranks own.
void check_states(const Checkpoint& checkpoint, const std::vector<StateChunk>& chunks,
                  const Config& config, Control& control);

class Trainer {
 public:
  // Collective. Loads the checkpoint's state where there is one.
  Trainer(const TrainerParts& parts, Start start);

  // Collective. Trains to train_iters, exit_interval, or until a rank is asked to stop, then saves.
  // Returns kDone or kRequeue. Throws Error (78) where the loss is not finite.
  Exit run();

 private:
  // Collective. The samples are the same on all ranks, and those that the run began with.
  void check_samples(const Start& start);
  void load(const Checkpoint& checkpoint, Resume resume);
  void train_loop();
  Exit end_training();
  void say_stopped(const std::string& why) const;
  void take_step();
  // Why this rank would stop now: a signal or the time; "" where it goes on.
  std::string wants_stop() const;
  // Collective, where a rank has said that it would stop: why.
  std::string why_all_stop();
  void read_report();  // of the last step, if it was not read yet
  void check_finite(const StepReport& report);
  void watch_claim();
  // That each rank keeps, of a step that was read.
  void watch_pace(int64_t iteration, double own_seconds);
  // Evaluates, from the index-th evaluation on, and reports that; whether it did.
  bool validate(int64_t index);
  // Means over eval_iters batches from the index-th evaluation on; nothing where a stop was asked
  // for.
  std::optional<Evaluation> evaluate(Split split, int64_t index);
  // The same batches, whose text is counted on the one rank of a group that reads them.
  BatchSource measured(BatchSource source, TextSize& size);
  void sum_over_ranks(TextSize& size);
  // What the model makes of sample_prompts. A stop cuts it short; behind a save that is due.
  void generate_samples();
  void generate_sample(size_t i);
  // Collective over control. Whether samples go on: no rank would stop, and rank 0 has not ended.
  bool samples_go_on(bool ended);
  void save();
  SaveOptions save_options() const;
  // The micro-batches of the step whose first sample is `first`, rated by the reference where there
  // is one. Collective over pp and tp.
  BatchSource step_batches(Batches& source, int64_t first, int64_t seq);
  // A micro-batch of the source, or, from the first on that this rank cannot read, none.
  Batch batch_or_none(Batches& source, int64_t first, int64_t m);
  RankState rank_state();
  // Collective. Saves the steps before, then throws what the rank that cannot read has met.
  [[noreturn]] void end_without_data();
  // Collective. Room for a copy of the state, after the first step, when the rest has its memory.
  void prepare_saving();
  // Collective. Before all ranks end, or save what is newer: a save that is under way, which
  // another rank's end would break off, is good. If it fails, that is said.
  void let_save_end();
  // Does what may throw the error of a save in the background. The first one costs no step: it is
  // said, and false is returned. The next one in a row ends the run.
  bool survives(const std::function<void()>& saving);
  // Of a save in the background; waits for it where told to.
  void end_of_save(std::optional<double> seconds);
  void checkpoint_saved(double seconds);
  bool due(int64_t interval) const { return interval > 0 && state_.iteration % interval == 0; }

  TrainerParts p_;
  std::vector<std::vector<int32_t>> prompts_;  // the tokens of sample_prompts
  std::vector<int32_t> sample_ends_;           // what ends their texts
  BatchPlan batch_;                            // the full one
  TrainState state_;
  std::unique_ptr<GraphRecorder> recorder_;  // null: nothing is recorded
  TrainStep step_;
  Batches train_batches_;
  Report report_;
  StepProfiler profiler_;
  Diagnostics diagnostics_;
  bool fresh_;
  bool waits_for_host_;  // results are read at once: a CPU gains nothing by waiting
  std::optional<ReportToCome> unread_;
  std::optional<c10::Event> last_arrival_;  // of the report before
  std::unique_ptr<BackgroundSave> saver_;   // none: nothing is saved while training goes on
  bool stop_ = false;
  std::string why_stop_;                       // what rank_state() has said first; it stays said
  std::optional<Error> lack_;                  // why this rank cannot read its samples
  int64_t saved_at_ = -1, evaluated_at_ = -1;  // by this start
  bool save_failed_ = false;                   // the last one
  bool ends_ = false;                          // this start takes no more steps
  int64_t skipped_in_a_row_ = 0;
  int64_t step_samples_ = 0;  // of the last step
  int64_t steps_here_ = 0;    // of this start
  TimeLimit::Clock::time_point claim_due_ = {};
};

}  // namespace neox
