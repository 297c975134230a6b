#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "generate/generate.h"
#include "generate/load.h"
#include "generate/text_stream.h"
#include "model/parameters.h"

namespace neox {
namespace {

constexpr int64_t kSettled = Replay::kWarmUps + 1;  // steps after which memory does not grow
constexpr int64_t kMostSkips = 50;                  // as GPT-NeoX (megatron/utils.py)

std::optional<double> seconds_between(const std::optional<c10::Event>& begin,
                                      const std::optional<c10::Event>& end) {
  if (!begin || !end) return std::nullopt;
  return begin->elapsedTime(*end) * 1e-3;
}

ReportOptions report_options(const TrainerParts& p, const Start& start) {
  return {.speaks = p.control.rank() == 0,
          .first_iteration = start.state.iteration,
          .device = p.model.hidden_options().device(),
          .batch = start.batch,
          .batches = batch_schedule(p.config, start.batch.global),
          .ranks = p.control.size()};
}

// What the loss of a step of sequences of that length is a mean over. In fp16 only over the samples
// of one data rank, as in DeepSpeed: gradients are sums over the ranks, and each rank's would lose
// more bits the more ranks there are.
double nominal_weight(const Config& config, const BatchPlan& batch, int64_t seq) {
  bool fp16 = config.precision.type == Precision::kFp16;
  int64_t samples = fp16 ? batch.micro * batch.accumulation : batch.global;
  return static_cast<double>(samples * (config.train.preference ? 1 : seq));
}

// On a CPU, reading ahead takes a core from the step.
BatchForm train_form(const TrainerParts& p, const Start& start) {
  bool gpu = p.model.hidden_options().device().is_cuda();
  return {.plan = start.batch,
          .seq = p.config.model.seq,
          .boundaries = p.boundaries,
          .rows_of_sample = rows_of_sample(p.config),
          .read = gpu ? BatchForm::Read::kAhead : BatchForm::Read::kWhenAsked,
          .batches = batch_schedule(p.config, start.batch.global)};
}

std::set<std::string> states_of(const auto& tensors) {
  std::set<std::string> states;
  for (const auto& tensor : tensors) states.insert(tensor.state);
  return states;
}

// What would fail at the first evaluation fails at the start.
std::vector<std::vector<int32_t>> tokens_of_prompts(const TrainerParts& p) {
  std::vector<std::vector<int32_t>> all;
  std::string where = p.config.where("sample_prompts");
  for (const std::string& prompt : p.config.train.sample_prompts) {
    check_usage(p.tokenizer, where, ": sample_prompts needs a tokenizer (vocab_file)");
    try {
      all.push_back(prompt_tokens(prompt, *p.tokenizer, p.model.config()));
    } catch (const Error& e) { fail(e.exit(), where, ": sample_prompts: ", e.what()); }
  }
  return all;
}

// Collective. Those that rank 0 finds: the files beside a tokenizer may differ between nodes, and
// ranks that do not end a text together would wait for each other.
std::vector<int32_t> ends_of_samples(const TrainerParts& p) {
  if (p.config.train.sample_prompts.empty()) return {};
  std::string found;
  if (p.control.rank() == 0)
    for (int32_t end :
         ends_of_texts(p.config.checkpoint.load, p.config.tokenizer.vocab_file, *p.tokenizer))
      found += concat(end, " ");
  std::vector<int32_t> ends;
  for (const std::string& text : split(p.control.gather(found)[0], ' '))
    if (auto end = number_of<int>(text)) ends.push_back(*end);
  return ends;
}

// Of the chunks of all ranks: some may own matrices of layers alone.
std::set<std::string> states_of_ranks(const std::vector<StateChunk>& chunks, Control& control) {
  std::set<std::string> mine = states_of(chunks), all;
  for (const std::string& theirs : control.gather(join(std::vector(mine.begin(), mine.end()), " ")))
    for (const std::string& state : split(theirs, ' ')) all.insert(state);
  return all;
}

// A reward model that begins as one that writes keeps the head that it has begun with.
void leave_out_new_head(const Checkpoint& checkpoint, std::vector<StateChunk>& chunks) {
  auto stored = checkpoint.tensors();
  auto is_score = [](const auto& part) { return part.name == kScoreName; };
  if (std::ranges::any_of(stored, is_score)) return;
  std::erase_if(chunks, [&](const StateChunk& chunk) {
    return std::ranges::any_of(chunk.placements, is_score);
  });
}

}  // namespace

void check_states(const Checkpoint& checkpoint, const std::vector<StateChunk>& chunks,
                  const Config& config, Control& control) {
  std::set<std::string> there = states_of(checkpoint.tensors()),
                        wanted = states_of_ranks(chunks, control);
  bool same = there == wanted;
  there.erase("param"), wanted.erase("param");
  check_usage(same, config.where("optimizer.type"), ": optimizer.type ",
              config.value("optimizer.type"), " goes on from the states ",
              wanted.empty() ? "none" : join(std::vector(wanted.begin(), wanted.end()), ", "),
              ", but ", checkpoint.dir().string(), " has ",
              there.empty() ? "none" : join(std::vector(there.begin(), there.end()), ", "),
              "; go on with the optimizer that the run began with, or begin a run from its weights "
              "(finetune: true, and another save directory)");
}

std::unique_ptr<GraphRecorder> recorder_of(const TrainConfig& config, int ranks,
                                           at::Device device) {
  if (!config.cuda_graph.value_or(ranks == 1)) return nullptr;
  auto recorder = graph_recorder(device);
  if (recorder) recorder->insists = config.cuda_graph.has_value();
  return recorder;
}

Trainer::Trainer(const TrainerParts& parts, Start start)
    : p_(parts),
      prompts_(tokens_of_prompts(parts)),
      sample_ends_(ends_of_samples(parts)),
      batch_(start.batch),
      state_(start.state),
      recorder_(recorder_of(parts.config.train, parts.control.size(),
                            parts.model.hidden_options().device())),
      step_(parts.model, parts.config, recorder_.get()),
      train_batches_(parts.sampler, Split::kTrain, train_form(parts, start), parts.model.mesh(),
                     parts.model.hidden_options().device()),
      report_(parts.config, report_options(parts, start)),
      profiler_(parts.config, {.rank = parts.control.rank(),
                               .ranks = parts.control.size(),
                               .gpu = parts.model.hidden_options().device().is_cuda(),
                               .first_iteration = start.state.iteration}),
      diagnostics_(parts.config.train, parts.model.config(), start.batch.global),
      fresh_(!start.checkpoint.has_value() || start.resume == Resume::kWeights),
      waits_for_host_(parts.model.hidden_options().device().is_cpu()) {
  if (recorder_ && p_.control.rank() == 0) {
    std::string why = step_.host_work();
    int64_t seq = length_of_step(p_.config, p_.config.train.iters);
    log_info("CUDA graphs: the step is recorded once",
             p_.config.train.curriculum ? concat(" sequences have ", seq, " tokens,") : "",
             " and then started as a whole",
             why.empty() ? "" : concat(", but for the update: ", why));
  }
  state_.config = p_.config.text();
  check_samples(start);
  if (start.checkpoint) load(*start.checkpoint, start.resume);
}

void Trainer::load(const Checkpoint& checkpoint, Resume resume) {
  auto chunks = step_.owned();
  if (resume == Resume::kWhole)
    check_states(checkpoint, chunks, p_.config, p_.control);
  else
    std::erase_if(chunks, [](const StateChunk& chunk) { return chunk.state != "param"; });
  if (resume == Resume::kWeights) leave_out_new_head(checkpoint, chunks);
  read_state(checkpoint, chunks, p_.model, [&] { p_.control.gather("", kMostReading); });
  step_.publish();
  if (resume != Resume::kWhole) return;
  step_.restore(state_.optimizer_steps);
  step_.loss_scale().restore({state_.loss_scale, state_.growth, state_.hysteresis});
  bool own = same_place(checkpoint.dir().parent_path(), p_.config.checkpoint.save);
  saved_at_ = own ? state_.iteration : -1;
}

Exit Trainer::run() {
  report_.begin();
  train_loop();
  Exit exit = end_training();
  report_.finish();
  return exit;
}

void Trainer::train_loop() {
  const TrainConfig& t = p_.config.train;
  const CheckpointConfig& c = p_.config.checkpoint;
  bool saves_zero = std::find(c.extra_save_iters.begin(), c.extra_save_iters.end(), 0) !=
                    c.extra_save_iters.end();
  if (fresh_ && saves_zero) save();
  // One that a stop cut short.
  bool owed = state_.iteration > 0 && state_.evaluated != state_.iteration;
  if (!fresh_ && owed && due(t.eval_interval) && validate(state_.iteration / t.eval_interval - 1))
    generate_samples();
  bool prepared = false;
  if (state_.iteration >= t.iters && p_.control.rank() == 0)
    log_info(t.iters == 0 ? "nothing is trained, only evaluated: train_iters is 0"
                          : concat("the run is complete: step ", state_.iteration, " of ", t.iters,
                                   "; a larger ", t.samples > 0 ? "train_samples" : "train_iters",
                                   " goes on"));
  while (!stop_ && state_.iteration < t.iters) {
    take_step();
    if (saver_) survives([this] { end_of_save(saver_->poll()); });
    if (!std::exchange(prepared, true)) prepare_saving();
    bool validated =
        !stop_ && due(t.eval_interval) && validate(state_.iteration / t.eval_interval - 1);
    if (stop_) break;
    if (c.saves_at(state_.iteration)) save();
    if (validated) generate_samples();
    if (due(t.exit_interval)) break;
  }
}

Exit Trainer::end_training() {
  const TrainConfig& t = p_.config.train;
  read_report();
  profiler_.finish(state_.iteration);
  bool complete = state_.iteration >= t.iters;
  std::string why;
  if (!complete) why = stop_ ? why_all_stop() : concat("exit_interval is ", t.exit_interval);
  bool validated =
      complete && !stop_ && evaluated_at_ != state_.iteration &&
      validate(std::max<int64_t>(state_.iteration - 1, 0) / std::max<int64_t>(t.eval_interval, 1));
  let_save_end();  // one that has failed is done again
  ends_ = true;
  if (state_.iteration > 0 && saved_at_ != state_.iteration) save();
  if (validated) generate_samples();
  if (!complete) {
    say_stopped(why);
    return stop_ ? Exit::kRequeue : Exit::kDone;
  }
  if (!stop_)
    if (auto means = evaluate(Split::kTest, 0))
      report_.evaluation(state_.iteration, "test", *means);
  bool cut = stop_ && t.eval_iters > 0 && !p_.config.checkpoint.save.empty() &&
             (p_.sampler.has(Split::kValid) || p_.sampler.has(Split::kTest));
  if (cut) say_stopped("the evaluation at the end was asked to stop");
  return cut ? Exit::kRequeue : Exit::kDone;
}

void Trainer::take_step() {
  if (profiler_.due(state_.iteration)) {
    read_report();    // on all ranks, since it may end the run
    report_.pause();  // a trace takes longer to write than many a step
    profiler_.at(state_.iteration);
    report_.resume();
  }
  int64_t first = state_.consumed_samples;
  auto start = TimeLimit::Clock::now();
  int64_t seq = length_of_step(p_.config, state_.iteration + 1);
  // The steps of each length would take memory of their own, of which recording lets nothing go.
  if (recorder_) recorder_->waits = seq < length_of_step(p_.config, p_.config.train.iters);
  BatchPlan batch = train_batches_.plan_at(first);
  ReportToCome result =
      step_.run(batch.accumulation, step_batches(train_batches_, first, seq),
                nominal_weight(p_.config, batch, seq), [this] { return rank_state(); });
  read_report();  // of the step before, while the device works on this one
  unread_ = std::move(result);
  ++state_.iteration;
  state_.consumed_samples += batch.global;
  step_samples_ = batch.global;
  report_.measured(state_.iteration,
                   diagnostics_.after(state_.iteration, step_, p_.model.mesh().world()));
  const TrainConfig& t = p_.config.train;
  bool needed = p_.config.checkpoint.saves_at(state_.iteration) || due(t.eval_interval) ||
                due(t.exit_interval);
  if (waits_for_host_ || needed) read_report();
  if (t.memory_profiling && ++steps_here_ == kSettled) report_.memory(step_.memory());
  p_.limit.measured_step(TimeLimit::Seconds(TimeLimit::Clock::now() - start).count());
}

void Trainer::read_report() {
  if (!unread_) return;
  StepReport report = step_.read(*unread_);
  std::optional<double> seconds = seconds_between(last_arrival_, unread_->arrival);
  last_arrival_ = std::move(unread_->arrival);
  unread_.reset();
  // After an abort a device's results are garbage: say that a rank is lost, not that the loss is.
  p_.model.mesh().world().exchange({});
  // The step that is unread is the last one, or the one before where the last has just been
  // started.
  int64_t iteration = state_.iteration;
  if (report.lacks_data) {  // as does the one behind it, if there is one
    --state_.iteration;
    state_.consumed_samples -= step_samples_;
    end_without_data();
  }
  report_.step(iteration, report, seconds);
  check_finite(report);
  stop_ = stop_ || report.stop;
  watch_claim();
  watch_pace(iteration, report.own_seconds);
}

void Trainer::check_finite(const StepReport& report) {
  skipped_in_a_row_ = report.finite ? 0 : skipped_in_a_row_ + 1;
  if (report.finite) return;
  bool scaled = p_.config.precision.type == Precision::kFp16;
  if (scaled && skipped_in_a_row_ < kMostSkips) return;
  let_save_end();
  fail(Exit::kNotFinite, "step ", state_.iteration, ": ",
       scaled ? concat(kMostSkips, " steps in a row overflowed in fp16, the loss scale is ",
                       report.loss_scale,
                       std::isfinite(report.loss) ? "" : concat(" and the loss ", report.loss))
              : concat("the loss is ", report.loss, " and the gradient norm ", report.grad_norm),
       ". The parameters are those of the last finite step. Go on from an earlier checkpoint with "
       "a lower learning rate",
       scaled ? ", more warm-up or precision: bfloat16" : " or more warm-up", " (samples ",
       state_.consumed_samples - step_samples_, "..", state_.consumed_samples - 1,
       " of the run were in this step).");
}

void Trainer::prepare_saving() {
  const CheckpointConfig& c = p_.config.checkpoint;
  bool any = false;
  for (int64_t i = state_.iteration; !any && i < p_.config.train.iters; ++i) any = c.saves_at(i);
  if (!c.async_save || c.save.empty() || !any) return;
  saver_ = std::make_unique<BackgroundSave>(
      save_options(), p_.control.channel("save", p_.control.size()), p_.ranks_here);
  saver_->prepare(step_.written());
  step_.before_update([this] { saver_->release(); });
}

void Trainer::end_of_save(std::optional<double> seconds) {
  if (seconds) checkpoint_saved(*seconds);
  p_.limit.save_under_way(saver_->under_way());
}

void Trainer::let_save_end() {
  try {
    if (saver_) end_of_save(saver_->wait());
  } catch (const std::exception& e) {
    saved_at_ = -1;
    log_warning(e.what());
  }
}

bool Trainer::survives(const std::function<void()>& saving) try {
  saving();
  return true;
} catch (const Error& e) {
  if (e.exit() != Exit::kIo || std::exchange(save_failed_, true)) throw;
  saved_at_ = -1;
  p_.limit.save_under_way(false);
  if (p_.control.rank() == 0)
    log_warning(e.what(), "; training goes on, and ends if the next save fails too");
  return false;
}

void Trainer::checkpoint_saved(double seconds) {
  save_failed_ = false;
  p_.limit.measured_save(seconds);
  if (p_.control.rank() == 0) p_.saved(saved_at_);
}

void Trainer::save() {
  const CheckpointConfig& c = p_.config.checkpoint;
  if (c.save.empty()) return;
  report_.pause();
  auto seconds = [start = TimeLimit::Clock::now()] {
    return TimeLimit::Seconds(TimeLimit::Clock::now() - start).count();
  };
  state_.optimizer_steps = step_.optimizer_steps();
  p_.model.mesh().world().exchange({});  // as in read_report(): the state would be garbage
  state_.evaluated = evaluated_at_;
  if (step_.loss_scale().is_dynamic()) {  // else that of a run which may go on in fp16 stays
    LossScale::State scale = step_.loss_scale().state();
    state_.loss_scale = scale.scale;
    state_.growth = scale.growth;
    state_.hysteresis = scale.hysteresis;
  }
  auto chunks = step_.written();
  // While nothing else is done, and its error is the run's own.
  bool last = ends_ || stop_ || state_.iteration >= p_.config.train.iters;
  if (saver_ && !last) {
    survives([&] { end_of_save(saver_->wait_to_save(state_.iteration)); });
    if (survives([&] { saver_->start(chunks, state_); })) saved_at_ = state_.iteration;
    p_.limit.save_under_way(saver_->under_way());
  } else {
    let_save_end();
    save_checkpoint(save_options(), chunks, state_, p_.control);
    saved_at_ = state_.iteration;
    checkpoint_saved(seconds());
  }
  report_.resume();
  report_.saved(state_.iteration, seconds());
}

}  // namespace neox
