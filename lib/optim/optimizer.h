// What turns gradients into new parameters. An optimizer updates the chunks that this rank owns
// and names its state for checkpoints; docs/formats.md lists the names.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "config/config.h"
#include "ops/update.h"
#include "param/param_buffer.h"

namespace neox {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Collective over the mesh. Updates the masters of the owned chunks from their gradients. Weight
  // decay applies to buffers that ask for it.
  virtual void step(const UpdateScalars& scalars) = 0;
  // Goes on after so many steps; called before the first step of a resumed run.
  virtual void begin(int64_t /*steps*/) {}
  // Why step() waits for the device, or does otherwise than the step before; "" where it never
  // does.
  virtual std::string host_work() const { return ""; }
  // State of buffer i as it is named in checkpoints: {"adam_m", ...}, {"adam_v", ...}; flat, like
  // its master().
  virtual std::vector<std::pair<std::string, at::Tensor>> state(size_t i) const = 0;
};

// How buffers must be cut for it.
Chunking chunking_of(const OptimizerConfig& config);

// Buffers and mesh must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<ParamBuffer*> buffers, Mesh& mesh);

}  // namespace neox
