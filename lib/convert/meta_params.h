// params.json, in which the checkpoints that Meta and Mistral publish describe a model. Pure but
// for a line in the log.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace neox {

// What the tensors say of the model.
struct MetaSizes {
  int64_t vocab = 0, intermediate = 0;
  bool tied = false;  // there is no head, or it is the embedding
};

// The config.json that transformers would have of the model: of LLaMA, or, with a sliding window,
// of Mistral. Throws (74) for fields that are missing, not known, or not supported; `where` names
// the file.
nlohmann::json config_of_params(nlohmann::json params, const MetaSizes& sizes,
                                const std::string& where);

}  // namespace neox
