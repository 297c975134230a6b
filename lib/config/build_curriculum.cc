// Sequences that are short at first: curriculum_learning.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

const std::string kCurriculumKey = "curriculum_learning",
                  kTypeKey = kCurriculumKey + ".schedule_type",
                  kScheduleKeys = kCurriculumKey + ".schedule_config.";

int64_t up_to_multiple(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

void require_given(const KeyReader& keys, const std::string& key) {
  keys.require(
      keys.given(key), kCurriculumKey, key, " is missing; an example: ", kCurriculumKey,
      ": {enabled: true, min_difficulty: 64, max_difficulty: 2048, schedule_type: "
      "fixed_linear, schedule_config: {total_curriculum_step: 10000, difficulty_step: 64}}");
}

int64_t given_integer(KeyReader& keys, const std::string& key) {
  require_given(keys, key);
  return keys.integer_from(key, 1);
}

// What belongs to the other kind of schedule has no effect in DeepSpeed either.
void read_stages(KeyReader& keys, CurriculumConfig& curriculum) {
  const std::string lengths = kScheduleKeys + "difficulty", steps = kScheduleKeys + "max_step";
  require_given(keys, lengths), require_given(keys, steps);
  curriculum.lengths = keys.integers(lengths);
  curriculum.last_steps = keys.integers(steps);
  size_t n = curriculum.lengths.size();
  keys.require(n > 1 && curriculum.last_steps.size() + 1 == n, steps, steps, " has ",
               counted(static_cast<int64_t>(curriculum.last_steps.size()), "step"), " and ",
               lengths, " ", counted(static_cast<int64_t>(n), "length"),
               "; it needs the last step of each length but the last one");
  for (const auto& [key, list] :
       {std::pair{lengths, &curriculum.lengths}, {steps, &curriculum.last_steps}})
    for (size_t i = 0; i < list->size(); ++i)
      keys.require(
          (*list)[i] > (i == 0 ? 0 : (*list)[i - 1]), key, key, " holds ", (*list)[i],
          i == 0 ? "; it must be positive" : concat(" behind ", (*list)[i - 1], "; it must grow"));
}

void read_rise(KeyReader& keys, CurriculumConfig& curriculum, bool root) {
  curriculum.steps = given_integer(keys, kScheduleKeys + "total_curriculum_step");
  curriculum.multiple = given_integer(keys, kScheduleKeys + "difficulty_step");
  if (!root) return;
  const std::string degree = kScheduleKeys + "root_degree";
  require_given(keys, degree);
  curriculum.root = keys.positive(degree);
}

void check_lengths(const KeyReader& keys, const CurriculumConfig& curriculum,
                   const Config& config) {
  const std::string longest = kCurriculumKey + ".max_difficulty";
  keys.require(curriculum.longest >= curriculum.shortest, longest, longest, " is ",
               curriculum.longest, ", less than min_difficulty, ", curriculum.shortest);
  if (!config.layout.splits_tokens) return;
  std::vector<int64_t> lengths = curriculum.lengths;
  if (lengths.empty()) lengths = {curriculum.multiple};
  lengths.push_back(curriculum.longest);
  for (int64_t length : lengths)
    keys.require(std::min(length, config.model.seq) % config.layout.tensor == 0, kCurriculumKey,
                 "model_parallel_size ", config.layout.tensor, " (",
                 keys.where("model_parallel_size"), ") does not divide sequences of ", length,
                 " tokens, which sequence_parallel (", keys.where("sequence_parallel"),
                 ") shares out; make the lengths and difficulty_step its multiples");
}

}  // namespace

std::optional<CurriculumConfig> read_curriculum(KeyReader& keys, const Config& so_far) {
  const Value* given = keys.given(kCurriculumKey);
  if (!given || given->items.empty()) return std::nullopt;
  const std::string enabled = kCurriculumKey + ".enabled";
  keys.require(
      keys.given(enabled), kCurriculumKey, kCurriculumKey,
      " does not say whether it is on: "
      "GPT-NeoX cuts its batches, and DeepSpeed takes it as off; add enabled: true or false");
  if (!keys.flag(enabled)) return std::nullopt;
  keys.require(keys.choice("train_impl") == "normal", kCurriculumKey, kCurriculumKey,
               " cuts samples off, which train_impl: ", keys.choice("train_impl"), " (",
               keys.where("train_impl"), ") compares as a whole; remove it");
  keys.choice(kCurriculumKey + ".curriculum_type");
  CurriculumConfig curriculum{.shortest = given_integer(keys, kCurriculumKey + ".min_difficulty"),
                              .longest = given_integer(keys, kCurriculumKey + ".max_difficulty")};
  require_given(keys, kTypeKey);
  const std::string type = keys.choice(kTypeKey);
  if (type == "fixed_discrete")
    read_stages(keys, curriculum);
  else
    read_rise(keys, curriculum, type == "fixed_root");
  check_lengths(keys, curriculum, so_far);
  return curriculum;
}

// As DeepSpeed 0.19's CurriculumScheduler, which stays where it has once been at its longest.
int64_t CurriculumConfig::length_at(int64_t step) const {
  if (!lengths.empty()) {
    auto stage = std::ranges::lower_bound(last_steps, step) - last_steps.begin();
    auto end = std::ranges::lower_bound(lengths, longest) - lengths.begin();
    return lengths[static_cast<size_t>(std::min(stage, end))];
  }
  double part = std::pow(static_cast<double>(step) / static_cast<double>(steps), 1 / root);
  auto length =
      std::floor(part * static_cast<double>(longest - shortest) + static_cast<double>(shortest));
  auto whole = static_cast<int64_t>(
      std::min(length, static_cast<double>(longest) + static_cast<double>(multiple)));
  whole -= whole % multiple;
  return std::min(std::max(whole, up_to_multiple(shortest, multiple)), longest);
}

int64_t tokens_of_steps(const Config& config, int64_t after, int64_t until) {
  int64_t seq = config.model.seq;
  if (!config.train.curriculum) return (until - after) * seq;
  int64_t tokens = 0;
  for (int64_t step = after + 1; step <= until; ++step)
    tokens += std::min(config.train.curriculum->length_at(step), seq);
  return tokens;
}

}  // namespace neox
