// 1-bit Adam (Tang et al. 2021, arXiv 2102.02888; as DeepSpeed's OnebitAdam): Adam without bias
// correction until freeze_step; after that the variance is frozen, gradients are no longer summed,
// and ranks send the signs of their momentum, with error feedback.
//
// What compression lost so far is each rank's own and is not saved: a resumed run begins with none.
// It waits for the device in each step, to know which of its two stages it is in.
#pragma once
#include "optim/compressed_mean.h"
#include "optim/optimizer.h"

namespace neox {

class OneBitAdam : public Optimizer {
 public:
  // Throws (64) where state is cut over the data ranks (ZeRO).
  OneBitAdam(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers, Mesh& mesh);
  // Collective over the mesh's replicas.
  void step(const UpdateScalars& scalars) override;
  std::vector<std::pair<std::string, at::Tensor>> state(size_t i) const override;
  void begin(int64_t steps) override;
  std::string host_work() const override { return "1-bit Adam asks whether a step was finite"; }

 private:
  void freeze();
  void update_frozen(size_t i, const UpdateScalars& scalars);

  OptimizerConfig config_;
  std::vector<ParamBuffer*> buffers_;
  Communicator& replicas_;
  std::vector<at::Tensor> m_, v_;
  std::vector<CompressedMean> means_;  // of each buffer; empty until the variance is frozen
  bool frozen_ = false;
};

}  // namespace neox
