#include "model/replay.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace neox {
namespace {

using at::Tensor;

Tensor empty_like(const Tensor& x) {
  return x.defined() ? at::empty(x.sizes(), x.options()) : Tensor();
}

std::string shapes_of(const std::vector<Tensor>& inputs) {
  std::string text;
  for (const Tensor& x : inputs)
    text += x.defined() ? concat(x.scalar_type(), x.sizes(), ";") : "none;";
  return text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::vector<Tensor> Replay::begin(const std::vector<Tensor>& inputs, Pass pass) {
  unit_ = 0;
  if (!recorder_) return inputs;
  at::NoGradGuard no_grad;
  if (std::string shapes = shapes_of(inputs); shapes != shapes_) {
    if (!shapes_.empty()) pass_ = 0;
    units_.clear();
    inputs_.clear();
    shapes_ = shapes;
  }
  if (pass == Pass::kNext || pass_ == 0) pass_ = std::min(pass_ + 1, kWarmUps + 1);
  if (!recorded()) return inputs;
  if (inputs_.empty()) std::ranges::transform(inputs, std::back_inserter(inputs_), empty_like);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined()) inputs_[i].copy_(inputs[i], true);
  return inputs_;
}

void Replay::run(const Work& work) {
  if (recorded() && unit_ == units_.size()) record(work);
  if (recorded())
    units_[unit_++]();
  else
    work();
}

void Replay::record(const Work& work) {
  try {
    units_.push_back(recorder_->record(pool_, work));
  } catch (const std::exception& e) {
    check(unit_ == 0 && !recorder_->insists, name_,
          " cannot be recorded as a CUDA graph: ", first_line(e.what()), "; set ",
          "enable_cuda_graph: false");
    log_warning(name_,
                " is not recorded as a CUDA graph, which may cost time: ", first_line(e.what()));
    recorder_ = nullptr;
  }
}

}  // namespace neox
