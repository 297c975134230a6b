// The parts of a Config, each read from its keys and checked. Each throws Error (64).
#pragma once
#include "config/config.h"
#include "config/reader.h"

namespace neox {

// `copy` repeats `key` under another name: an error where it does not agree with its value.
void check_copy(KeyReader& keys, const std::string& copy, const std::string& key, double value);

ModelConfig read_model(KeyReader& keys);
// Parts of it. The experts, of a model with its MLP; nothing where it has none.
void read_mlp(KeyReader& keys, ModelConfig& model);
std::optional<MoeConfig> read_moe(KeyReader& keys, const ModelConfig& model);
LayoutConfig read_layout(KeyReader& keys, const ModelConfig& model);
TokenizerConfig read_tokenizer(KeyReader& keys, const LayoutConfig& layout);
PrecisionConfig read_precision(KeyReader& keys);
OptimizerConfig read_optimizer(KeyReader& keys, const ModelConfig& model);
BatchConfig read_batch(KeyReader& keys);
DataConfig read_data(KeyReader& keys);
// so_far: with model, batch and data.
TrainConfig read_train(KeyReader& keys, const Config& so_far,
                       const std::function<int64_t(const Config&)>& samples_of_epoch);
std::optional<PreferenceConfig> read_preference(KeyReader& keys, const Config& so_far);
std::optional<CurriculumConfig> read_curriculum(KeyReader& keys, const Config& so_far);
// so_far: with batch and train.
ScheduleConfig read_schedule(KeyReader& keys, const Config& so_far);
CheckpointConfig read_checkpoint(KeyReader& keys);
GenerateConfig read_generate(KeyReader& keys);

}  // namespace neox
