// The optimizers that treat each element by itself: Adam, SGD, Lion. Which one it is, is data: the
// names of its state and its update.
//
// The state lies where the masters of the buffers do: on the device, or on the host
// (ParamBuffer::move_master), to where the gradients are then copied, a buffer at a time.
#pragma once
#include "optim/optimizer.h"

namespace neox {

class Elementwise : public Optimizer {
 public:
  Elementwise(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers);
  void step(const UpdateScalars& scalars) override;
  std::string host_work() const override;
  std::vector<std::pair<std::string, at::Tensor>> state(size_t i) const override;

 private:
  OptimizerConfig config_;
  std::vector<ParamBuffer*> buffers_;
  std::vector<const char*> names_;              // of the state
  std::vector<std::vector<at::Tensor>> state_;  // of each buffer, in the order of the names
};

// The names of the state that `config` asks for.
std::vector<const char*> elementwise_state(const OptimizerConfig& config);

// The scalars where `device` is; waits for the device where that is the host.
UpdateScalars scalars_on(at::Device device, const UpdateScalars& scalars);

}  // namespace neox
