// Precision and batch.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

Precision precision_of(const std::string& name) {
  if (name == "fp16") return Precision::kFp16;
  if (name == "bfloat16" || name == "bf16") return Precision::kBf16;
  return name == "fp64" ? Precision::kFp64 : Precision::kFp32;
}

// One place that asks for, or against, a precision.
struct Wish {
  std::string key, words;
  Precision precision;
};

// What the dictionaries fp16 and bf16 ask for.
std::vector<Wish> dictionary_wishes(KeyReader& keys) {
  std::vector<Wish> wishes;
  bool as_bf16 = keys.choice("fp16.type") == "bfloat16";
  if (keys.flag("fp16.enabled"))
    wishes.push_back({"fp16.enabled", as_bf16 ? "fp16.type: bfloat16" : "fp16.enabled: true",
                      as_bf16 ? Precision::kBf16 : Precision::kFp16});
  if (keys.flag("bf16.enabled"))
    wishes.push_back({"bf16.enabled", "bf16.enabled: true", Precision::kBf16});
  for (const char* key : {"fp16.type", "fp16.enabled", "bf16.enabled"})
    keys.mark(key, Effect::kInput);
  return wishes;
}

[[noreturn]] void fail_wishes(KeyReader& keys, const Wish& a, const Wish& b) {
  keys.fail_at(b.key, b.words, " contradicts ", a.words, " (", keys.where(a.key),
               "); keep one of them, or decide with --set precision=", precision_name(b.precision));
}

// The dictionary that says no: fp16: {enabled: false} under precision: fp16.
void check_denial(KeyReader& keys, const Wish& wish) {
  if (wish.key != "precision") return;
  bool fp16 = wish.precision == Precision::kFp16, bf16 = wish.precision == Precision::kBf16;
  for (auto [key, asked] : {std::pair{"fp16.enabled", fp16}, std::pair{"bf16.enabled", bf16}})
    if (asked && keys.given(key) && !keys.given(key)->is_true())
      fail_wishes(keys, wish, {key, std::string(key) + ": false", wish.precision});
}

Precision choose_precision(KeyReader& keys) {
  std::vector<Wish> wishes = dictionary_wishes(keys);
  std::string named = keys.choice("precision");
  if (!named.empty()) {
    Wish wish{"precision", "precision: " + named, precision_of(named)};
    if (!keys.overridden("precision")) {
      check_denial(keys, wish);
      wishes.insert(wishes.begin(), wish);
    } else {
      for (const Wish& other : wishes)
        if (other.precision != wish.precision) {
          keys.mark(other.key, Effect::kNone);
          keys.note(concat("--set precision=", named, " wins over ", other.words, " (",
                           keys.where(other.key), ")"));
        }
      wishes = {wish};
    }
  }
  if (wishes.empty()) {
    keys.record("precision", "fp32");
    return Precision::kFp32;
  }
  for (const Wish& wish : wishes)
    if (wish.precision != wishes[0].precision) fail_wishes(keys, wishes[0], wish);
  const Wish& first = wishes[0];
  const char* name = precision_name(first.precision);
  if (first.key == "precision")
    keys.record("precision", name);
  else
    keys.derive("precision", name, concat(first.words, " (", keys.where(first.key), ")"));
  if (first.words == "fp16.type: bfloat16")
    keys.note(concat(keys.where("fp16.type"),
                     ": fp16.type: bfloat16 is honoured: the run computes in bfloat16, without a "
                     "loss scale (NeoX ignores this key and computes in fp16)"));
  return first.precision;
}

// "gas" is its name in files of 2023.
std::optional<int64_t> read_accumulation(KeyReader& keys, std::optional<int64_t> steps) {
  if (!keys.given("gas")) return steps;
  const std::string key = "gradient_accumulation_steps";
  int64_t gas = keys.integer_from("gas", 1);
  keys.mark("gas", Effect::kInput);
  keys.require(!steps || *steps == gas, "gas", "gas is ", gas, ", but ", key, " is ",
               steps.value_or(0), " (", keys.where(key), "); they are one: remove one of them");
  if (!steps) keys.derive(key, std::to_string(gas), "gas");
  return gas;
}

std::optional<Precision> read_gradients(KeyReader& keys, Precision precision) {
  const std::string key = "data_types.grad_accum_dtype";
  std::string name = keys.choice(key);
  constexpr std::array<std::string_view, 4> kWide = {"", "fp32", "float32", "float"};
  if (std::ranges::count(kWide, name)) return {};
  bool bf16 = name.starts_with("b");
  Precision type = bf16 ? Precision::kBf16 : Precision::kFp16;
  keys.require(precision == type, key, key, " is ", name, ", but precision is ",
               precision_name(precision), " (", keys.where("precision"),
               "): gradients are accumulated in fp32, or in the 16 bits that the run computes in");
  return type;
}

std::optional<Precision> read_gradient_sums(KeyReader& keys, const PrecisionConfig& config) {
  const std::string key = "communication_data_type";
  const Precision precision = config.type;
  std::string name = keys.choice(key);
  keys.mark("fp32_allreduce", Effect::kInput);
  if (name.empty() || name == "fp32") {
    bool wider = config.gradients && (name == "fp32" || keys.flag("fp32_allreduce"));
    return wider ? std::optional(Precision::kFp32) : std::nullopt;
  }
  bool fp16 = name == "fp16";
  keys.require(!keys.flag("fp32_allreduce"), key, key, " is ", name,
               ", but fp32_allreduce is true (", keys.where("fp32_allreduce"),
               "); keep one of them");
  keys.require(precision != Precision::kFp64, key, key, " is ", name,
               ", but in fp64 gradients are summed in fp64; remove it");
  keys.require(!fp16 || precision == Precision::kFp16, key, key,
               " is fp16, whose greatest number is 65504: only the loss scale of precision fp16 "
               "keeps gradients below that; use bf16");
  return fp16 ? Precision::kFp16 : Precision::kBf16;
}

std::optional<BatchRampUp> read_ramp_up(KeyReader& keys, const BatchConfig& batch) {
  const std::string key = "rampup_batch_size";
  if (!keys.given(key)) return std::nullopt;
  std::vector<int64_t> numbers = keys.integers(key);
  keys.require(numbers.size() == 3, key, key, " has ",
               counted(static_cast<int64_t>(numbers.size()), "number"),
               "; it needs three, as in Megatron: the samples of the first steps, how many more it "
               "grows by each time, and within how many samples of the run it comes to "
               "train_batch_size: [16, 16, 9765625]");
  BatchRampUp ramp_up{numbers[0], numbers[1], numbers[2]};
  for (int64_t number : numbers)
    keys.require(number >= 1, key, key, " holds ", number, "; it must be positive");
  keys.require(batch.global.has_value(), key, key,
               " needs train_batch_size, to which the batch grows");
  int64_t growth = *batch.global - ramp_up.start;
  keys.require(growth > 0 && growth % ramp_up.increment == 0, key, key, ": from ", ramp_up.start,
               " by ", ramp_up.increment, " each time the batch does not grow to train_batch_size ",
               *batch.global, " (", keys.where("train_batch_size"), ")");
  return ramp_up;
}

}  // namespace

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bfloat16";
    case Precision::kFp64:
      return "fp64";
  }
  return "";
}

void check_copy(KeyReader& keys, const std::string& copy, const std::string& key, double value) {
  auto given = keys.maybe_number(copy);
  keys.mark(copy, Effect::kInput);
  if (given)
    keys.require(*given == value, copy, copy, " is a copy of ", key, ", which is ", shortest(value),
                 " (", keys.where(key), "); set that one and remove this");
}

PrecisionConfig read_precision(KeyReader& keys) {
  PrecisionConfig precision;
  precision.type = choose_precision(keys);
  precision.gradients = read_gradients(keys, precision.type);
  precision.gradient_sums = read_gradient_sums(keys, precision);
  if (precision.type != Precision::kFp16) return precision;
  precision.static_loss_scale = keys.number("fp16.loss_scale");
  keys.require(precision.static_loss_scale >= 0, "fp16.loss_scale", "fp16.loss_scale is ",
               shortest(precision.static_loss_scale),
               "; 0 means dynamic, a positive number is the scale itself");
  int64_t power = keys.integer_from("fp16.initial_scale_power", 0);
  keys.require(power <= 32, "fp16.initial_scale_power", "fp16.initial_scale_power is ", power,
               "; the scale starts at 2 to this power, so at most 32");
  precision.initial_loss_scale = std::ldexp(1.0, static_cast<int>(power));
  precision.loss_scale_window = keys.integer_from("fp16.loss_scale_window", 1);
  precision.hysteresis = keys.integer_from("fp16.hysteresis", 1);
  precision.min_loss_scale = keys.positive("fp16.min_loss_scale");
  return precision;
}

BatchConfig read_batch(KeyReader& keys) {
  BatchConfig batch;
  auto positive = [&](const std::string& key) {
    auto value = keys.given(key) ? keys.maybe_integer(key) : std::nullopt;
    if (!value) keys.record(key, "null");
    keys.require(value.value_or(1) >= 1, key, key, " is ", value.value_or(1),
                 "; it must be at least 1");
    return value;
  };
  batch.global = positive("train_batch_size");
  batch.micro = positive("train_micro_batch_size_per_gpu");
  batch.accumulation = read_accumulation(keys, positive("gradient_accumulation_steps"));
  check_usage(batch.global || batch.micro,
              "neither train_batch_size nor train_micro_batch_size_per_gpu is given; set "
              "train_batch_size, the samples of a step over all ranks");
  if (batch.micro)
    check_copy(keys, "batch_size", "train_micro_batch_size_per_gpu",
               static_cast<double>(*batch.micro));
  else
    keys.require(!keys.given("batch_size"), "batch_size",
                 "batch_size is a copy of train_micro_batch_size_per_gpu; set that one");
  batch.ramp_up = read_ramp_up(keys, batch);
  return batch;
}

}  // namespace neox
