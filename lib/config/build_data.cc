// The data: which files, how they are blended and cut, and in whose order their samples come.
#include <cmath>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

// The most data sets that can be blended.
size_t most_sets(DataOrder order) { return order == DataOrder::kMegatronCore ? 32766 : 254; }

void check_weights(const KeyReader& keys, const std::string& key,
                   const std::vector<double>& weights, DataOrder order) {
  double sum = 0;
  for (double weight : weights) {
    keys.require(std::isfinite(weight) && weight >= 0, key, key, " holds ", shortest(weight),
                 "; weights are not negative");
    keys.require(weight > 0 || order != DataOrder::kMegatronCore, key, key,
                 " holds 0; data_order megatron-core takes weights above 0: leave that data set "
                 "out");
    sum += weight;
  }
  keys.require(weights.empty() || sum > 0, key, key, " holds zeros alone; give one that is not 0");
}

// A list of names, and one of as many labels, or none.
struct NamedSets {
  std::string key;
  std::vector<std::string> paths, labels;
};

// What lies beside each of the sets.
std::vector<std::string> read_beside(KeyReader& keys, const std::string& key, const NamedSets& sets,
                                     const char* what) {
  std::vector<std::string> found = keys.texts(key);
  keys.require(found.empty() || found.size() == sets.paths.size(), key, key, " names ",
               counted(std::ssize(found), "data set"), " for the ", sets.paths.size(), " of ",
               sets.key, "; give the ", what, " of each");
  return found;
}

NamedSets read_sets(KeyReader& keys, const std::string& name, DataOrder order) {
  NamedSets sets{.key = name + "_data_paths"};
  sets.paths = keys.texts(sets.key);
  for (const std::string& path : sets.paths)
    keys.require(!trim(path).empty(), sets.key, sets.key, " holds an empty name");
  keys.require(sets.paths.size() <= most_sets(order), sets.key, sets.key, " names ",
               sets.paths.size(), " data sets; at most ", most_sets(order),
               " can be blended in this data_order, and 32766 in megatron-core's");
  sets.labels = read_beside(keys, name + "_label_data_paths", sets, "labels");
  return sets;
}

std::vector<double> read_weights(KeyReader& keys, const std::string& key, const NamedSets& sets,
                                 DataOrder order) {
  std::vector<double> weights = keys.numbers(key);
  keys.require(weights.empty() || weights.size() == sets.paths.size(), key, key, " holds ",
               counted(std::ssize(weights), "weight"), " for the ",
               counted(std::ssize(sets.paths), "data set"), " of ", sets.key,
               "; give one for each");
  check_weights(keys, key, weights, order);
  return weights;
}

// The lists of one split, which go with each other. Of pairs the chosen answers are "pos", the
// rejected ones "neg".
DataSets read_split(KeyReader& keys, const std::string& name, const DataConfig& data) {
  NamedSets text = read_sets(keys, (data.pairs ? "pos_" : "") + name, data.order), other;
  if (data.pairs) {
    other = read_sets(keys, "neg_" + name, data.order);
    keys.require(other.paths.size() == text.paths.size(), other.key, other.key, " names ",
                 counted(std::ssize(other.paths), "data set"), " for the ", text.paths.size(),
                 " of ", text.key, "; give the rejected answers of each");
    keys.require(other.labels.empty() == text.labels.empty(), other.key,
                 "labels are given for the ", other.labels.empty() ? "chosen" : "rejected",
                 " answers of ", name, " alone; give those of both, or of none");
  }
  auto weights = read_weights(keys, name + "_data_weights", text, data.order);
  auto rewards = read_beside(keys, name + "_reward_data_paths", text, "rewards");
  return {text.paths, weights, text.labels, other.paths, other.labels, rewards};
}

// Whether data sets are of pairs.
bool read_pairs(KeyReader& keys) {
  bool pairs = keys.choice("dataset_impl") == "pairwise";
  std::string impl = keys.choice("train_impl");
  keys.require(!pairs || impl == "dpo" || impl == "rm", "dataset_impl",
               "dataset_impl is pairwise, from which train_impl: dpo and rm learn; train_impl is ",
               impl, " (", keys.where("train_impl"), ")");
  return pairs;
}

// The keys of pairs go with each other, and with no others.
void check_pairs(KeyReader& keys, const DataConfig& data) {
  auto given = [&](const std::string& key) {
    return keys.given(key) && !keys.given(key)->items.empty();
  };
  for (const std::string name : {"train", "valid", "test"})
    for (const std::string side : {"", "pos_", "neg_"}) {
      std::string key = side + name + "_data_paths";
      keys.require(data.pairs == !side.empty() || !given(key), key, key,
                   data.pairs ? " is given, but dataset_impl is pairwise ("
                              : " is given, but dataset_impl is gpt2 (",
                   keys.where("dataset_impl"), "); set ",
                   data.pairs ? "pos_" + name + "_data_paths and neg_" + name + "_data_paths"
                              : "dataset_impl: pairwise and train_impl: dpo or rm");
    }
  if (!data.pairs) return;
  keys.require(data.data_path.empty(), "data_path",
               "data_path has no pairs; give pos_train_data_paths and neg_train_data_paths");
  keys.require(data.packing == Packing::kUnpacked, "pack_impl", "pack_impl is ",
               keys.choice("pack_impl"), ", but dataset_impl: pairwise (",
               keys.where("dataset_impl"), ") has a pair in each sample; set pack_impl: unpacked");
}

// NeoX's rule: the separator is "," where there is one, else "/"; then numbers, of which missing
// ones are 0.
void check_split(const KeyReader& keys, const std::string& text) {
  const std::string form =
      "; write three shares of training, validation and test, such as \"969, 30, 1\"";
  double sum = 0;
  auto shares = split(text, text.find(',') != text.npos ? ',' : '/');
  for (const std::string& part : shares) {
    std::string_view number = trim(part);
    double share = number_of<double>(number).value_or(-1);
    keys.require(share >= 0 && share < 1e18, "split", "split is \"", text, "\", in which \"",
                 number, "\" is no share", form);
    sum += share;
  }
  keys.require(shares.size() <= 3, "split", "split is \"", text, "\", with ", shares.size(),
               " shares", form);
  keys.require(sum > 0, "split", "split is \"", text, "\", with a sum of 0", form);
}

DataOrder read_order(KeyReader& keys) {
  std::string order = keys.choice("data_order");
  if (order == "megatron") return DataOrder::kMegatron;
  return order == "megatron-core" ? DataOrder::kMegatronCore : DataOrder::kNeox;
}

// data_path of Megatron's orders is what its --data-path takes: a prefix; or weights and prefixes
// in turn; Megatron-Core also prefixes alone.
void read_blend(KeyReader& keys, DataConfig& data) {
  std::vector<std::string> words;
  std::string text = data.data_path;
  for (char& c : text) c = c == '\t' || c == '\n' ? ' ' : c;
  for (const std::string& word : split(text, ' '))
    if (!word.empty()) words.push_back(word);
  if (data.order == DataOrder::kNeox || words.size() < 2) return;
  bool weighted = words.size() % 2 == 0;
  for (size_t i = 0; weighted && i < words.size(); i += 2)
    weighted = number_of<double>(words[i]).has_value();
  keys.require(weighted || data.order == DataOrder::kMegatronCore, "data_path", "data_path is \"",
               data.data_path,
               "\"; with data_order megatron it is one prefix, or weights and prefixes in turn, "
               "such as \"0.3 data/a 0.7 data/b\"");
  for (size_t i = 0; i < words.size(); ++i)
    if (!weighted || i % 2)
      data.blend.paths.push_back(words[i]);
    else
      data.blend.weights.push_back(*number_of<double>(words[i]));
  keys.require(data.blend.paths.size() <= most_sets(data.order), "data_path", "data_path names ",
               data.blend.paths.size(), " data sets; at most ", most_sets(data.order),
               " can be blended in this data_order");
  check_weights(keys, "data_path", data.blend.weights, data.order);
}

void read_packing(KeyReader& keys, DataConfig& data) {
  std::string packing = keys.choice("pack_impl");
  data.packing = packing == "unpacked"              ? Packing::kUnpacked
                 : packing == "pack_until_overflow" ? Packing::kUntilOverflow
                                                    : Packing::kPacked;
  bool packed = data.packing == Packing::kPacked;
  keys.require(packed || data.order == DataOrder::kNeox, "pack_impl", "pack_impl is ", packing,
               ", which data_order ", keys.choice("data_order"), " (", keys.where("data_order"),
               ") does not have; it is GPT-NeoX's");
  data.allow_chopped = keys.flag("allow_chopped");
  if (packed) keys.mark("allow_chopped", Effect::kNone);
}

void read_sampling(KeyReader& keys, DataConfig& data) {
  data.weight_by_documents = keys.flag("weight_by_num_documents");
  data.sampling_alpha = keys.number("weighted_sampler_alpha");
  const char* key = "weight_by_num_documents";
  keys.require(!data.weight_by_documents || data.order == DataOrder::kNeox, key, key,
               " is GPT-NeoX's, and data_order is ", keys.choice("data_order"), " (",
               keys.where("data_order"), "); give weights");
  keys.require(!data.weight_by_documents || !data.train.paths.empty(), key, key,
               " needs train_data_paths, a list of the data sets to weigh");
  keys.require(std::isfinite(data.sampling_alpha) && data.sampling_alpha >= 0,
               "weighted_sampler_alpha", "weighted_sampler_alpha is ",
               shortest(data.sampling_alpha), "; it must not be negative");
  if (!data.weight_by_documents) keys.mark("weighted_sampler_alpha", Effect::kNone);
  if (!data.weight_by_documents) return;
  for (const char* given : {"train_data_weights", "valid_data_weights", "test_data_weights"}) {
    if (!keys.given(given)) continue;
    keys.mark(given, Effect::kNone);
    keys.note(concat(keys.where(given), ": ", given,
                     " has no effect: weight_by_num_documents computes the weights, as in "
                     "GPT-NeoX"));
  }
}

void check_together(const KeyReader& keys, const DataConfig& data) {
  for (const char* key : {"train_data_paths", "valid_data_paths", "test_data_paths"}) {
    bool given = keys.given(key) && !keys.given(key)->items.empty();
    keys.require(!given || data.data_path.empty(), key, key, " and data_path (",
                 keys.where("data_path"), ") exclude each other; remove one");
    keys.require(!given || !data.train.paths.empty(), key, key,
                 " is given without train_data_paths; give that too");
  }
}

// A loss over labels is of other tokens than one over all: GPT-NeoX asks each split for labels
// where that of training has them.
void check_labels(const KeyReader& keys, const DataConfig& data) {
  for (auto [name, sets] : {std::pair{"valid", &data.valid}, {"test", &data.test}}) {
    bool labels = !data.train.labels.empty();
    if (sets->paths.empty() || labels == !sets->labels.empty()) continue;
    std::string side = data.pairs ? "pos_" : "";
    auto key = [&](std::string_view split) { return concat(side, split, "_label_data_paths"); };
    std::string given = key(labels ? "train" : name), missing = key(labels ? name : "train");
    keys.require(false, given, given, " is given, but ", missing, " is not, so that the losses of ",
                 "training and of ", name, " would be of different tokens; give both or none");
  }
}

}  // namespace

DataConfig read_data(KeyReader& keys) {
  DataConfig data;
  data.order = read_order(keys);
  data.data_path = keys.text("data_path");
  data.pairs = read_pairs(keys);
  data.train = read_split(keys, "train", data);
  data.valid = read_split(keys, "valid", data);
  data.test = read_split(keys, "test", data);
  read_packing(keys, data);
  check_pairs(keys, data);
  check_together(keys, data);
  check_labels(keys, data);
  read_blend(keys, data);
  read_sampling(keys, data);
  data.split = keys.text("split");
  check_split(keys, data.split);
  data.seed = keys.integer_from("seed", 0);
  keys.require(data.seed <= 4294967295, "seed", "seed is ", data.seed,
               "; the order of the samples takes seeds up to 4294967295");
  data.eod_mask_loss = keys.flag("eod_mask_loss");
  data.reset_attention_mask = keys.flag("reset_attention_mask");
  data.reset_position_ids = keys.flag("reset_position_ids");
  data.cache_dir = keys.text("data_cache_path");
  std::string save = keys.text("save");
  if (!save.empty()) data.cache_fallback = std::filesystem::path(save) / "index-cache";
  return data;
}

std::vector<NamedDataset> datasets_of(const DataConfig& data) {
  std::vector<NamedDataset> all;
  auto add = [&](const std::string& key, const std::vector<std::string>& prefixes) {
    for (const std::string& prefix : prefixes) all.push_back({key, prefix});
  };
  add("data_path", data.blend.paths);
  if (data.blend.paths.empty() && !data.data_path.empty()) add("data_path", {data.data_path});
  for (auto [split, sets] :
       {std::pair{"train", &data.train}, {"valid", &data.valid}, {"test", &data.test}}) {
    std::string chosen = concat(data.pairs ? "pos_" : "", split), rejected = concat("neg_", split);
    add(chosen + "_data_paths", sets->paths);
    add(chosen + "_label_data_paths", sets->labels);
    add(concat(split, "_reward_data_paths"), sets->rewards);
    add(rejected + "_data_paths", sets->rejected);
    add(rejected + "_label_data_paths", sets->rejected_labels);
  }
  return all;
}

}  // namespace neox
