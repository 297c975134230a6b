// What is learnt of answers as a whole: train_impl other than normal.
#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

// What answers lie in, which must be that of train_impl.
void check_data(KeyReader& keys, const DataConfig& data, const std::string& impl) {
  keys.require(data.pairs || (impl != "dpo" && impl != "rm"), "train_impl", "train_impl: ", impl,
               " needs pairs of answers: dataset_impl: pairwise, pack_impl: unpacked, "
               "pos_train_data_paths and neg_train_data_paths");
  bool kto = impl == "kto";
  for (auto [name, sets] :
       {std::pair{"train", &data.train}, {"valid", &data.valid}, {"test", &data.test}}) {
    const std::string rewards = concat(name, "_reward_data_paths");
    keys.require(kto || sets->rewards.empty(), rewards, rewards,
                 " is given, from which train_impl: kto learns; train_impl is ", impl, " (",
                 keys.where("train_impl"), ")");
    keys.require(!kto || sets->rewards.size() == sets->paths.size(), "train_impl",
                 "train_impl: kto needs a reward for each answer: ", rewards, " beside ", name,
                 "_data_paths (neox-prepare-data --reward-key)");
  }
  keys.require(!kto || !data.train.paths.empty(), "train_impl",
               "train_impl: kto needs answers and their rewards: train_data_paths and "
               "train_reward_data_paths (neox-prepare-data --reward-key)");
  keys.require(!kto || data.packing == Packing::kUnpacked, "pack_impl", "pack_impl is ",
               keys.choice("pack_impl"), ", but train_impl: kto (", keys.where("train_impl"),
               ") has an answer in each sample; set pack_impl: unpacked");
}

// The other answers of its micro-batch are a part of what an answer's loss is.
void check_micro_batch(KeyReader& keys, const BatchConfig& batch) {
  const std::string key = "train_micro_batch_size_per_gpu";
  keys.require(batch.micro.has_value(), "train_impl",
               "train_impl: kto estimates the KL divergence from the answers of a micro-batch; "
               "give their number, ",
               key, ", so that losses do not depend on the number of ranks");
  keys.require(*batch.micro > 1, key, key, " is ", *batch.micro, ", but train_impl: kto (",
               keys.where("train_impl"),
               ") estimates the KL divergence for an answer from others of its micro-batch; give 2 "
               "or more");
}

// Answers of the model and of what it is compared with must take the same ways.
void check_routes(KeyReader& keys, const ModelConfig& model) {
  bool shared = model.moe && model.moe->router == Router::kSinkhorn;
  keys.require(!shared, "moe_router_type", "moe_router_type is sinkhorn, which chooses experts in ",
               "training otherwise than in use, so that train_impl: ", keys.choice("train_impl"),
               " (", keys.where("train_impl"),
               ") would compare the choices; give moe_router_type: topk");
}

double weight_of(KeyReader& keys, const std::string& key) {
  double weight = keys.number(key);
  keys.require(weight >= 0, key, key, " is ", shortest(weight), "; it must not be negative");
  return weight;
}

PreferenceConfig read_scores(KeyReader& keys, const ModelConfig& model) {
  PreferenceConfig scores{.kind = PreferenceConfig::Kind::kScores,
                          .z_loss = weight_of(keys, "z_loss")};
  keys.require(!model.mup, "use_mup",
               "use_mup has no rule for the head of a reward model (train_impl: rm, ",
               keys.where("train_impl"), "); leave it out");
  keys.require(keys.texts("sample_prompts").empty(), "sample_prompts",
               "sample_prompts: a reward model (train_impl: rm, ", keys.where("train_impl"),
               ") rates texts and writes none; leave it out");
  return scores;
}

}  // namespace

std::optional<PreferenceConfig> read_preference(KeyReader& keys, const Config& so_far) {
  const std::string impl = keys.choice("train_impl");
  check_data(keys, so_far.data, impl);
  if (impl == "normal") return std::nullopt;
  if (impl == "rm") return read_scores(keys, so_far.model);
  bool kto = impl == "kto";
  const std::string beta = kto ? "kto_beta" : "dpo_beta";
  PreferenceConfig preference{
      .kind = kto ? PreferenceConfig::Kind::kKto : PreferenceConfig::Kind::kDpo,
      .beta = keys.positive(beta)};
  if (!kto) preference.reference_free = keys.flag("dpo_reference_free");
  if (!preference.reference_free) check_routes(keys, so_far.model);
  if (!kto) return preference;
  check_micro_batch(keys, so_far.batch);
  preference.desirable_weight = weight_of(keys, "kto_desirable_weight");
  preference.undesirable_weight = weight_of(keys, "kto_undesirable_weight");
  keys.require(preference.desirable_weight + preference.undesirable_weight > 0,
               "kto_desirable_weight",
               "kto_desirable_weight and kto_undesirable_weight are both 0: nothing is learnt");
  return preference;
}

}  // namespace neox
