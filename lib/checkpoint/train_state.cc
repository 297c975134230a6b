#include "checkpoint/train_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace neox {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kEvaluated = "evaluated";
// Files of before have not these.
constexpr std::string_view kMayMiss[] = {kEvaluated,       "micro_batch",    "save_seconds",
                                         "reference_step", "reference_hash", "tokenizer_hash"};

// Visits every member with its key: the one list of them.
template <class State, class Visit>
void each_member(State& state, Visit visit) {
  visit("iteration", state.iteration);
  visit("optimizer_steps", state.optimizer_steps);
  visit("consumed_samples", state.consumed_samples);
  visit("global_batch", state.global_batch);
  visit("dataset_samples", state.dataset_samples);
  visit("padded_vocab", state.padded_vocab);
  visit("micro_batch", state.micro_batch);
  visit("loss_scale", state.loss_scale);
  visit("growth", state.growth);
  visit("hysteresis", state.hysteresis);
  visit(kEvaluated, state.evaluated);
  visit("save_seconds", state.save_seconds);
  visit("reference_step", state.reference_step);
  visit("reference_hash", state.reference_hash);
  visit("dataset_hash", state.dataset_hash);
  visit("tokenizer_hash", state.tokenizer_hash);
  visit("architecture", state.architecture);
  visit("config", state.config);
}

bool has_type(const Json& value, const int64_t&) { return value.is_number_integer(); }
bool has_type(const Json& value, const double&) { return value.is_number(); }
bool has_type(const Json& value, const std::string&) { return value.is_string(); }

}  // namespace

std::string to_json(const TrainState& state) {
  check(std::isfinite(state.loss_scale), "a train state with a loss scale of ", state.loss_scale,
        " cannot be saved");
  Json json;
  each_member(state, [&](std::string_view key, const auto& value) { json[key] = value; });
  try {
    return json.dump(2) + "\n";
  } catch (const Json::exception& e) {
    fail(Exit::kInternal, "cannot write the train state as JSON: ", e.what());
  }
}

TrainState train_state_from_json(const std::string& text, const std::string& where) {
  TrainState state;
  try {
    Json json = Json::parse(text);
    each_member(state, [&](std::string_view key, auto& value) {
      bool may_miss = std::ranges::find(kMayMiss, key) != std::end(kMayMiss);
      if (may_miss && json.is_object() && !json.contains(key)) return;
      check_io(json.is_object() && json.contains(key), where, " lacks ", key);
      check_io(has_type(json[key], value), where, ": ", key, " is ", json[key].dump(),
               ", which is of another type");
      json[key].get_to(value);
    });
    if (!json.contains(kEvaluated)) state.evaluated = state.iteration;
  } catch (const Json::exception& e) {
    fail(Exit::kIo, where, " is not readable JSON: ", e.what());
  }
  return state;
}

}  // namespace neox
