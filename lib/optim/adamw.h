// AdamW over the chunks that this rank owns.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "ops/adamw.h"
#include "param/param_buffer.h"

namespace neox {

class AdamW {
 public:
  // The buffers must outlive it.
  AdamW(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers);
  // Updates the owned chunks from their gradients. Weight decay applies to buffers that ask for it.
  void step(const AdamWScalars& scalars);
  // State of buffer i as it is named in checkpoints: {"adam_m", ...}, {"adam_v", ...}; flat, like
  // its master().
  std::vector<std::pair<std::string, at::Tensor>> state(size_t i) const;

 private:
  OptimizerConfig config_;
  std::vector<ParamBuffer*> buffers_;
  std::vector<at::Tensor> m_, v_;
};

}  // namespace neox
