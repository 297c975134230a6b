#include "optim/optimizer.h"

#include "optim/elementwise.h"
#include "optim/muon.h"
#include "optim/one_bit_adam.h"

namespace neox {

Chunking chunking_of(const OptimizerConfig& config) {
  return config.kind == OptimizerKind::kMuon ? Chunking::kWholeTensors : Chunking::kElements;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<ParamBuffer*> buffers, Mesh& mesh) {
  if (config.place == StatePlace::kHost)
    for (ParamBuffer* buffer : buffers) buffer->move_master(at::kCPU);
  if (config.kind == OptimizerKind::kMuon)
    return std::make_unique<Muon>(config, std::move(buffers), mesh.tp());
  if (config.kind == OptimizerKind::kOneBitAdam)
    return std::make_unique<OneBitAdam>(config, std::move(buffers), mesh);
  return std::make_unique<Elementwise>(config, std::move(buffers));
}

}  // namespace neox
