// What answers are compared with where they are learnt as a whole: the model that training began
// as, in the type of the computation and without gradients, over the same mesh.
#pragma once
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "launch/control.h"
#include "model/gpt_neox.h"
#include "train/pipeline.h"

namespace neox {

class Reference {
 public:
  // Collective. Prefers nothing where there is no checkpoint (dpo_reference_free). The mesh must
  // outlive it.
  Reference(const ModelConfig& config, Mesh& mesh, ModelOptions options,
            const std::optional<Checkpoint>& checkpoint, Control& control);

  // Gives each of a step's batches its `reference`. Collective over pp and tp.
  void rate(std::vector<Batch>& batches);

 private:
  std::unique_ptr<GptNeoX> model_;  // null: prefers nothing
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace neox
