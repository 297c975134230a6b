// Evaluation and generated samples of the Trainer.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "base/log.h"
#include "base/progress.h"
#include "generate/generate.h"
#include "generate/text_stream.h"
#include "model/gpus.h"
#include "ops/random.h"
#include "train/trainer.h"

namespace neox {
namespace {

constexpr int64_t kTokensBetweenStops = 32;  // of a sample, between questions whether a rank stops

// On a terminal, of rank 0: an evaluation may take as long as many steps.
std::optional<Progress> progress_of(Mesh& mesh, Split split, int64_t iters) {
  if (mesh.world().rank() != 0) return std::nullopt;
  const char* label = split == Split::kValid ? "validate" : "test";
  Progress::Options options{.label = label, .unit = "batches", .total = iters};
  options.plain = Progress::Plain::kNever;
  return std::optional<Progress>(std::in_place, options);
}

// An evaluation that never fits into a job keeps the run from going on.
void say_cut(Mesh& mesh, int64_t step, int64_t batch, int64_t iters) {
  if (mesh.world().rank() != 0) return;
  log_info("the evaluation after step ", step, " stopped in batch ", batch, " of ", iters,
           "; the next start begins it again before it trains: where it does not fit into a job, ",
           "lower eval_iters");
}

}  // namespace

bool Trainer::validate(int64_t index) {
  report_.pause();
  auto means = evaluate(Split::kValid, index);
  if (means) report_.evaluation(state_.iteration, "validation", *means);
  if (means && !stop_ && prompts_.empty()) evaluated_at_ = state_.iteration;
  report_.resume();
  return means.has_value();
}

std::optional<Evaluation> Trainer::evaluate(Split split, int64_t index) {
  int64_t iters = p_.config.train.eval_iters;
  if (iters == 0 || !p_.sampler.has(split)) return std::nullopt;
  Mesh& mesh = p_.model.mesh();
  BatchForm form{batch_, p_.config.model.seq, p_.boundaries, rows_of_sample(p_.config)};
  Batches source(p_.sampler, split, form, mesh, p_.model.hidden_options().device());
  Pipeline pipeline(p_.model);
  Evaluation means;
  double weight = 0;
  std::optional<Progress> progress = progress_of(mesh, split, iters);
  for (int64_t i = 0; i < iters; ++i) {
    int64_t first = (index * iters + i) * batch_.global;
    LossSum sum = pipeline.evaluate(batch_.accumulation,
                                    measured(step_batches(source, first, form.seq), means.size));
    if (mesh.tp().rank() != 0) sum.loss.zero_(), sum.weight.zero_(), sum.measures.zero_();
    RankState mine = rank_state();
    Tensor totals = at::cat({at::stack({sum.loss, sum.weight, at::full_like(sum.loss, mine.stop),
                                        at::full_like(sum.loss, mine.lacks_data)}),
                             sum.measures});
    mesh.world().all_reduce(totals);
    totals = totals.cpu();
    mesh.world().exchange({});  // as in read_report()
    const auto* v = totals.const_data_ptr<double>();
    if (v[3] != 0) end_without_data();
    means.loss += v[0];
    weight += v[1];
    means.measures.resize(static_cast<size_t>(totals.numel() - 4));
    for (size_t j = 0; j < means.measures.size(); ++j) means.measures[j] += v[4 + j];
    if (progress) progress->update(i + 1);
    if (v[2] != 0) {
      stop_ = true;
      say_cut(mesh, state_.iteration, i + 1, iters);
      return std::nullopt;
    }
  }
  means.loss = without_sign_of_nan(means.loss / std::max(weight, 1e-20));
  if (p_.config.train.by_character) sum_over_ranks(means.size);
  for (double& mean : means.measures) mean /= std::max(weight, 1e-20);
  return means;
}

BatchSource Trainer::measured(BatchSource source, TextSize& size) {
  Mesh& mesh = p_.model.mesh();
  bool counts = mesh.tp().rank() == 0 && mesh.pp().rank() == 0;
  if (!p_.config.train.by_character || !counts) return source;
  return [this, source = std::move(source), &size](int64_t m) {
    Batch batch = source(m);
    size.add(batch, *p_.tokenizer);
    return batch;
  };
}

void Trainer::sum_over_ranks(TextSize& size) {
  Mesh& mesh = p_.model.mesh();
  Tensor all = at::stack({at::scalar_tensor(size.tokens, at::kDouble),
                          at::scalar_tensor(size.characters, at::kDouble),
                          at::scalar_tensor(size.bytes, at::kDouble)})
                   .to(p_.model.hidden_options().device());
  mesh.world().all_reduce(all);
  all = all.cpu();
  mesh.world().exchange({});  // as in read_report()
  const auto* v = all.const_data_ptr<double>();
  size = {.tokens = v[0], .characters = v[1], .bytes = v[2]};
}

bool Trainer::samples_go_on(bool ended) {
  rank_state();  // as of now
  // Of rank 0 the first letter says whether more come, of others nothing.
  auto all = p_.control.gather((ended ? "." : "+") + why_stop_);
  stop_ = std::ranges::any_of(all, [](const auto& said) { return said.size() > 1; });
  return !stop_ && all[0][0] == '+';
}

void Trainer::generate_sample(size_t i) {
  const GenerateConfig& g = p_.config.generate;
  const std::string& prompt = p_.config.train.sample_prompts[i];
  Sampling sampling{.max_tokens = p_.config.train.sample_tokens,
                    .temperature = g.temperature,
                    .top_k = g.top_k,
                    .top_p = g.top_p,
                    .vocab = p_.tokenizer->vocab_size(),
                    .key = random_key(p_.config.train.seed, "sample." + prompt)};
  using Begin = TextStream::Begin;
  TextStream stream(*p_.tokenizer, prompt.empty() ? Begin::kText : Begin::kBehindPrompt);
  std::string text = prompt, fault;  // told, as a validation loss that is not finite
  TextRequest request{prompts_[i], sampling};
  TextOptions options{.ends = sample_ends_};
  int64_t tokens = 0;
  options.on_token = [&](size_t, int32_t) {
    return ++tokens % kTokensBetweenStops != 0 || samples_go_on(false);
  };
  options.on_failure = [&](size_t, const std::string& why) { fault = concat(" [", why, "]"); };
  auto generated = generate(p_.model, {&request, 1}, options);
  if (stop_) return;
  for (int32_t token : generated.front()) text += stream.add(token);
  report_.samples(state_.iteration, text + stream.rest() + fault);
}

// The first replica writes them, whose ranks have the same tokens; the others, which on other
// processors could have others, wait for it.
void Trainer::generate_samples() {
  if (prompts_.empty() || stop_) return;
  report_.pause();
  p_.model.keep_gathered(true);
  if (p_.model.mesh().data().rank() == 0) {
    UnplannedAttention for_texts(p_.model.hidden_options().device());
    for (size_t i = 0; i < prompts_.size() && !stop_ && samples_go_on(false); ++i)
      generate_sample(i);
    if (!stop_) samples_go_on(true);
  } else {
    while (samples_go_on(false)) continue;
  }
  if (!stop_) evaluated_at_ = state_.iteration;
  p_.model.keep_gathered(false);
  report_.resume();
}

}  // namespace neox
