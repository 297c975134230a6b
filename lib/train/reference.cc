#include "train/reference.h"

#include <ATen/ops/zeros.h>

#include "generate/load.h"
#include "train/start.h"

namespace neox {

Reference::Reference(const ModelConfig& config, Mesh& mesh, ModelOptions options,
                     const std::optional<Checkpoint>& checkpoint, Control& control) {
  if (!checkpoint) return;
  options.start = ModelOptions::kZeros;
  options.dtypes.state = options.dtypes.param;  // no optimizer, so no master copy
  options.keeping = Keeping::kNoGradients;
  options.chunking = Chunking::kElements;
  model_ = std::make_unique<GptNeoX>(config, mesh, options);
  read_parameters(*checkpoint, *model_, [&] { control.gather("", kMostReading); });
  pipeline_ = std::make_unique<Pipeline>(*model_);
}

void Reference::rate(std::vector<Batch>& batches) {
  std::vector<Tensor> rows;
  if (model_)
    pipeline_->evaluate(
        std::ssize(batches), [&](int64_t m) { return batches[static_cast<size_t>(m)]; }, &rows);
  for (size_t m = 0; m < batches.size(); ++m) {
    auto zeros = batches[m].weights.options().dtype(at::kDouble);
    batches[m].reference = m < rows.size() ? rows[m] : at::zeros(batches[m].weights.size(0), zeros);
  }
}

}  // namespace neox
