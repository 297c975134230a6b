// Global batch = micro-batch x accumulation x data ranks.
#include "config/batch.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;  // keeps products within 64 bits

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t product(int64_t a, int64_t b) {
  check_usage(a <= kMost / b, "a batch of ", a, " x ", b, " samples is too large: ", kMost,
              " is the most; see train_micro_batch_size_per_gpu and gradient_accumulation_steps");
  return a * b;
}

[[noreturn]] void fail_disagreement(const Config& config, int64_t ranks, int64_t found) {
  const BatchConfig& batch = config.batch;
  int64_t global = *batch.global, micro = *batch.micro, steps = *batch.accumulation;
  std::string fixes = concat("\n  train_batch_size: ", found);
  if (global % (micro * ranks) == 0)
    fixes += concat("\n  gradient_accumulation_steps: ", global / (micro * ranks),
                    ", or remove it: it is derived");
  else
    fixes +=
        "\n  remove gradient_accumulation_steps: it is derived, and the last micro-batches "
        "are filled up";
  if (global % (steps * ranks) == 0)
    fixes += concat("\n  train_micro_batch_size_per_gpu: ", global / (steps * ranks));
  if (global % (micro * steps) == 0)
    fixes +=
        concat("\n  start on ", global / (micro * steps), " data-parallel ranks (",
               global / (micro * steps) * config.layout.pipe * config.layout.tensor, " in all)");
  fail(Exit::kUsage, config.where("train_batch_size"), ": train_batch_size is ", global,
       ", but train_micro_batch_size_per_gpu ", micro, " (",
       config.where("train_micro_batch_size_per_gpu"), ") x gradient_accumulation_steps ", steps,
       " (", config.where("gradient_accumulation_steps"), ") x ", ranks, " data-parallel ranks is ",
       found, ". One of these mends it:", fixes);
}

}  // namespace

BatchPlan plan_batch(const Config& config, int64_t data_ranks, std::optional<FrozenBatch> frozen) {
  check(data_ranks >= 1, "a batch on ", data_ranks, " data-parallel ranks");
  const BatchConfig& batch = config.batch;
  BatchPlan plan;
  int64_t given_steps = batch.accumulation.value_or(1);
  if (frozen)
    plan.global = frozen->global;
  else if (batch.global)
    plan.global = *batch.global;
  else
    plan.global = product(product(batch.micro.value(), given_steps), data_ranks);
  check_usage(plan.global >= 1 && plan.global <= kMost, "a global batch of ", plan.global,
              " samples (train_batch_size) is not in 1 .. ", kMost);
  plan.micro =
      batch.micro ? *batch.micro : divide_up(plan.global, product(given_steps, data_ranks));
  if (frozen && !batch.micro && frozen->micro > 0) plan.micro = std::min(plan.micro, frozen->micro);
  int64_t ranks_micro = product(plan.micro, data_ranks);
  plan.accumulation = divide_up(plan.global, ranks_micro);
  bool all_given = batch.global && batch.micro && batch.accumulation && !frozen;
  if (all_given && product(ranks_micro, given_steps) != plan.global)
    fail_disagreement(config, data_ranks, product(ranks_micro, given_steps));
  return plan;
}

BatchPlan of_size(const BatchPlan& plan, int64_t global, int64_t data_ranks) {
  return {global, plan.micro, divide_up(global, plan.micro * data_ranks)};
}

std::string to_string(const BatchPlan& plan, int64_t data_ranks) {
  return concat("batch of ", counted(plan.global, "sample"), " = ", plan.micro, " x ",
                counted(data_ranks, "rank"), " x ", counted(plan.accumulation, "micro-batch"));
}

std::string badly_used_ranks(const BatchPlan& plan, int64_t data_ranks, const char* size) {
  int64_t busy = divide_up(plan.global, plan.micro);
  if (busy < data_ranks)
    return concat("the batch of ", counted(plan.global, "sample"), " in micro-batches of ",
                  plan.micro, " leaves ", data_ranks - busy, " of ", data_ranks,
                  " data-parallel ranks without work; take a larger ", size,
                  plan.micro > 1 ? ", a smaller train_micro_batch_size_per_gpu" : "",
                  " or fewer ranks");
  int64_t places = plan.micro * plan.accumulation * data_ranks, empty = places - plan.global;
  if (empty * 10 <= places) return "";
  return concat("the ", to_string(plan, data_ranks), " computes as long as one of ", places,
                ": the rest is filled up with weight 0; take a ", size, " of ", places,
                ", or another train_micro_batch_size_per_gpu");
}

}  // namespace neox
