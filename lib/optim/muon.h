// Muon for the matrices of layers, AdamW for all else: momentum, made orthogonal, is the step. A
// matrix is taken whole: its owner among the shards holds all of it (Chunking::kWholeTensors), and
// the ranks of tp gather their parts of it.
#pragma once
#include "optim/elementwise.h"

namespace neox {

class Muon : public Optimizer {
 public:
  Muon(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers, Communicator& tp);
  // Collective over tp.
  void step(const UpdateScalars& scalars) override;
  std::string host_work() const override { return others_->host_work(); }
  // {"muon_m", ...} of matrices of layers; Adam's of others.
  std::vector<std::pair<std::string, at::Tensor>> state(size_t i) const override;

 private:
  struct Matrices {  // a buffer of them
    ParamBuffer* buffer;
    at::Tensor momentum;  // flat, like its master()
  };
  void update(Matrices& matrices, const UpdateScalars& scalars);
  at::Tensor orthogonal_step(ParamBuffer& buffer, const at::Tensor& direction);

  OptimizerConfig config_;
  Communicator& tp_;
  std::vector<Matrices> matrices_;
  std::unique_ptr<Elementwise> others_;
  std::vector<size_t> place_;  // of each buffer among matrices_ or the others
  std::vector<ParamBuffer*> buffers_;
};

}  // namespace neox
