// Learning rates: read, compared, and taken from another configuration.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

// What decides the schedule; with Megatron's keys, what GPT-NeoX compares on resume.
constexpr const char* kScheduleKeys[] = {
    "optimizer.params.lr", "min_lr", "lr_decay_style",     "lr_decay_iters",
    "lr_decay_samples",    "warmup", "lr_schedule_compat", "lr_wsd_decay_style",
    "lr_wsd_decay_iters"};

bool is_schedule_key(const std::string& key) {
  return std::find(std::begin(kScheduleKeys), std::end(kScheduleKeys), key) !=
         std::end(kScheduleKeys);
}

template <class T>
struct Word {
  const char* word;
  T value;
};

constexpr Word<LrDecay> kDecays[] = {{"constant", LrDecay::kConstant},
                                     {"linear", LrDecay::kLinear},
                                     {"cosine", LrDecay::kCosine},
                                     {"exponential", LrDecay::kExponential},
                                     {"inverse-square-root", LrDecay::kInverseSquareRoot},
                                     {"WSD", LrDecay::kWsd}};
constexpr Word<LrFormula> kFormulas[] = {
    {"v1", LrFormula::kV1}, {"v2", LrFormula::kV2}, {"megatron", LrFormula::kMegatron}};
constexpr Word<WsdDecay> kWsdDecays[] = {{"exponential", WsdDecay::kExponential},
                                         {"linear", WsdDecay::kLinear},
                                         {"cosine", WsdDecay::kCosine},
                                         {"minus_sqrt", WsdDecay::kMinusSqrt}};

template <class T, size_t N>
T value_of(const Word<T> (&words)[N], const std::string& word) {
  for (const Word<T>& w : words)
    if (word == w.word) return w.value;
  return words[0].value;
}

// Two decays are only Megatron's, one is only NeoX's.
LrFormula read_formula(KeyReader& keys, LrDecay decay, const std::string& style) {
  const std::string key = "lr_schedule_compat";
  bool of_megatron = decay == LrDecay::kInverseSquareRoot || decay == LrDecay::kWsd;
  if (of_megatron && !keys.given(key)) {
    keys.derive(key, "megatron", "lr_decay_style");
    return LrFormula::kMegatron;
  }
  if (keys.given("gas") && !keys.given(key) &&
      (decay == LrDecay::kCosine || decay == LrDecay::kLinear))
    keys.note(concat("gas (", keys.where("gas"),
                     ") is of files of Pythia's time, whose learning rates, with "
                     "which Pythia was trained, come by lr_schedule_compat: v1; those of today "
                     "(v2) are taken"));
  LrFormula formula = value_of(kFormulas, keys.choice(key));
  bool megatron = formula == LrFormula::kMegatron;
  keys.require(!of_megatron || megatron, key, key, ": ", keys.choice(key),
               " has no lr_decay_style ", style, " (", keys.where("lr_decay_style"),
               "), which is Megatron's; remove ", key);
  keys.require(!megatron || decay != LrDecay::kExponential, key, key,
               ": megatron has no lr_decay_style exponential (", keys.where("lr_decay_style"),
               "), which is GPT-NeoX's; remove ", key);
  return formula;
}

void read_wsd(KeyReader& keys, ScheduleConfig& schedule, const std::string& end) {
  for (const char* key : {"lr_wsd_decay_style", "lr_wsd_decay_iters"})
    keys.require(schedule.decay == LrDecay::kWsd || !keys.given(key), key, key,
                 " is for lr_decay_style: WSD alone; here it is ", keys.choice("lr_decay_style"),
                 " (", keys.where("lr_decay_style"), ")");
  if (schedule.decay != LrDecay::kWsd) return;
  schedule.wsd_decay = value_of(kWsdDecays, keys.choice("lr_wsd_decay_style"));
  keys.require(keys.given("lr_wsd_decay_iters"), "lr_decay_style",
               "lr_decay_style: WSD needs lr_wsd_decay_iters, how many of the last steps before ",
               end, " decay to min_lr");
  double room = schedule.decay_iters - std::ceil(schedule.warmup_iters);
  schedule.wsd_decay_iters = keys.integer_from("lr_wsd_decay_iters", 1);
  bool counted = schedule.decay_iters > 0;
  keys.require(static_cast<double>(schedule.wsd_decay_iters) <= room || !counted,
               "lr_wsd_decay_iters", "lr_wsd_decay_iters is ", schedule.wsd_decay_iters,
               ", but between the end of the warm-up and ", end, " (", keys.value(end), ", ",
               keys.where(end), ") there are ", shortest(room), " steps");
}

// By which key the decay ends. Of a batch that is ramped up only samples are known before.
const char* decay_key(const KeyReader& keys, const Config& so_far) {
  const char *iters = "lr_decay_iters", *samples = "lr_decay_samples";
  bool ramps_up = so_far.batch.ramp_up.has_value();
  keys.require(!ramps_up || !keys.given(iters), iters, iters, ", but rampup_batch_size (",
               keys.where("rampup_batch_size"), ") makes steps of unlike size; give ", samples,
               " instead");
  bool by_samples = keys.given(samples) || (so_far.train.samples > 0 && !keys.given(iters));
  return by_samples ? samples : iters;
}

// A whole number of the units of `key`, steps or samples: what is given, or a share of the run's.
int64_t read_decay(KeyReader& keys, const std::string& key, const char* length, double run) {
  const std::string share = "lr_decay_fraction";
  auto fraction = keys.maybe_number(share);
  if (fraction) keys.number_in(share, 0, 1);
  keys.mark(share, Effect::kInput);
  auto end = keys.maybe_integer(key);
  keys.require(!fraction || !end, share, share, " and ", key, " (", keys.where(key),
               ") exclude each other; remove one");
  if (!end) {
    end = static_cast<int64_t>(std::floor(fraction.value_or(1) * run));
    keys.derive(key, std::to_string(*end), fraction ? concat(share, " and ", length) : length);
  }
  keys.require(*end > 0 || run == 0 || !fraction, share, share, " ", shortest(fraction.value_or(0)),
               " of ", length, " ", static_cast<int64_t>(run), " is less than a step");
  keys.require(*end > 0 || run == 0, key, key, " is ", *end, "; it must be positive");
  return *end;
}

// In steps of the full batch.
double read_decay_steps(KeyReader& keys, const Config& so_far) {
  const std::string key = decay_key(keys, so_far), iters = "lr_decay_iters";
  if (key == iters)
    return static_cast<double>(
        read_decay(keys, key, "train_iters", static_cast<double>(so_far.train.iters)));
  keys.require(!keys.given(iters), key, key, " and ", iters, " (", keys.where(iters),
               ") exclude each other; remove one");
  keys.require(so_far.batch.global.has_value(), key, key,
               " needs train_batch_size: its steps must not depend on the number of ranks");
  auto batch = static_cast<double>(*so_far.batch.global);
  bool known = so_far.train.samples > 0;
  double run = known ? static_cast<double>(so_far.train.samples)
                     : static_cast<double>(so_far.train.iters) * batch;
  return static_cast<double>(read_decay(keys, key, known ? "train_samples" : "train_iters", run)) /
         batch;
}

ScheduleOnResume read_on_resume(KeyReader& keys) {
  const std::string ours = "override_lr_scheduler", theirs = "use_checkpoint_lr_scheduler";
  bool config = keys.flag(ours), checkpoint = keys.flag(theirs);
  keys.require(!config || !checkpoint, theirs, theirs, " and ", ours, " (", keys.where(ours),
               ") exclude each other; keep one");
  return config       ? ScheduleOnResume::kOfConfig
         : checkpoint ? ScheduleOnResume::kOfCheckpoint
                      : ScheduleOnResume::kMustAgree;
}

// Whether the last steps have a learning rate of 0.
bool ends_at_zero(const ScheduleConfig& schedule, double length) {
  bool falls = schedule.formula == LrFormula::kMegatron
                   ? schedule.decay != LrDecay::kConstant
                   : schedule.formula == LrFormula::kV2 && schedule.decay == LrDecay::kLinear;
  return falls && schedule.min_lr == 0 && length > schedule.decay_iters;
}

}  // namespace

double length_of_run(const Config& config) {
  const TrainConfig& train = config.train;
  if (train.samples == 0) return static_cast<double>(train.iters);
  return static_cast<double>(train.samples) / static_cast<double>(config.batch.global.value());
}

ScheduleConfig read_schedule(KeyReader& keys, const Config& so_far) {
  double run = length_of_run(so_far);
  ScheduleConfig schedule;
  std::string style = keys.choice("lr_decay_style");
  schedule.decay = value_of(kDecays, style);
  schedule.formula = read_formula(keys, schedule.decay, style);
  schedule.lr = keys.number("optimizer.params.lr");
  schedule.min_lr = keys.number_in("min_lr", 0, schedule.lr);
  schedule.decay_iters = read_decay_steps(keys, so_far);
  double warmup = keys.number("warmup");
  bool all = warmup == 1 && schedule.formula != LrFormula::kV1 && run <= schedule.decay_iters;
  keys.require((warmup >= 0 && warmup < 1) || all, "warmup", "warmup is ", shortest(warmup),
               "; it is a share of lr_decay_iters, so at least 0 and less than 1 (1 where nothing "
               "is trained behind it, and not with lr_schedule_compat: v1)");
  schedule.warmup_iters = warmup * schedule.decay_iters;
  const std::string end = decay_key(keys, so_far);
  read_wsd(keys, schedule, end);
  schedule.on_resume = read_on_resume(keys);
  const char* length = so_far.train.samples > 0 ? "train_samples" : "train_iters";
  if (rises_again(schedule, run))
    keys.note(concat(length, " ", keys.value(length), " (", keys.where(length),
                     ") is greater than ", end, " ", keys.value(end), " (", keys.where(end),
                     "): after the end of the cosine, NeoX's formula lets the learning rate rise "
                     "again; make them equal, or set lr_schedule_compat: v1"));
  if (ends_at_zero(schedule, run))
    keys.note(concat(length, " ", keys.value(length), " (", keys.where(length),
                     ") is greater than ", end, " ", keys.value(end), " (", keys.where(end),
                     ") and min_lr is 0: behind the end of the decay the learning rate is 0, and "
                     "nothing is learnt; make them equal, or set min_lr"));
  return schedule;
}

bool rises_again(const ScheduleConfig& schedule, double length) {
  return schedule.decay == LrDecay::kCosine && schedule.formula == LrFormula::kV2 &&
         length > schedule.decay_iters;
}

std::string schedule_difference(const Config& a, const Config& b) {
  for (const char* key : kScheduleKeys)
    if (a.value(key) != b.value(key)) return key;
  return "";
}

void take_schedule(Config& config, const Config& saved) {
  ScheduleOnResume on_resume = config.schedule.on_resume;
  config.schedule = saved.schedule;
  config.schedule.on_resume = on_resume;
  OptimizerConfig& optimizer = config.optimizer;
  // Rates that are given stay what they are; others are lr.
  for (auto [key, factor] : {std::pair{"optimizer.params.muon_lr", &optimizer.muon_lr_factor},
                             std::pair{"optimizer.params.adam_lr", &optimizer.adam_lr_factor}}) {
    auto found = std::ranges::find(config.settings, key, &Setting::key);
    if (found == config.settings.end() || found->value == "null") continue;
    if (found->effect == Effect::kDerived)
      found->value = shortest(saved.optimizer.lr);
    else
      *factor *= optimizer.lr / saved.optimizer.lr;
  }
  optimizer.lr = saved.optimizer.lr;
  std::erase_if(config.settings, [](const Setting& s) { return is_schedule_key(s.key); });
  for (const Setting& setting : saved.settings)
    if (is_schedule_key(setting.key)) config.settings.push_back(setting);
  std::ranges::sort(config.settings, {}, &Setting::key);
}

}  // namespace neox
