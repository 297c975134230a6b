// Directories of Hugging Face's transformers.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/raw_file.h"
#include "convert/formats.h"
#include "convert/gpt_neox_hf.h"
#include "convert/json.h"
#include "convert/safetensors.h"

namespace neox {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfigName = "config.json";

// Beside config.json and the tensors.
constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.jinja"};

constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

constexpr const char* kEnd = "<|endoftext|>";

const Companion* companion(const ModelFiles& model, const std::string& name) {
  auto found = std::ranges::find(model.companions, name, &Companion::name);
  return found == model.companions.end() ? nullptr : &*found;
}

// A head that is saved beside the embedding that it is tied to must not say something else.
void check_tied(const ModelFiles& model) {
  for (const Ignored& ignored : model.ignored) {
    if (!ignored.reason.starts_with("tied")) continue;
    at::Tensor embedding = model.tensors.at(0).read(), head = model.files->read(ignored.name);
    bool same = embedding.scalar_type() == head.scalar_type() && embedding.equal(head);
    check_io(same, model.where, ": tie_word_embeddings is true, but ", ignored.name,
             " differs from the embedding");
  }
}

// The number of <|endoftext|> in the tokenizer, or null.
Json find_end(const ModelFiles& model) {
  if (const Companion* file = companion(model, "tokenizer.json")) {
    nlohmann::json json = read_json(file->path);
    for (const auto& token : json.value("added_tokens", nlohmann::json::array()))
      if (token.at("content") == kEnd) return token.at("id");
    return nullptr;
  }
  if (const Companion* file = companion(model, "vocab.json"))
    return read_json(file->path).value(kEnd, nlohmann::json());
  return nullptr;
}

Json end_of_text(const ModelFiles& model) {
  try {
    return find_end(model);
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::kIo, model.where,
         ": its tokenizer has another form than Hugging Face's: ", e.what());
  }
}

// From the config.json that was converted once, else what the tokenizer says.
void add_token_ids(const ModelFiles& model, Json& config) {
  if (const Companion* file = companion(model, kConfigName)) {
    nlohmann::json was = read_json(file->path);
    for (const char* name : kTokenIds)
      if (was.contains(name)) config[name] = was[name];
    return;
  }
  Json end = end_of_text(model);
  config["bos_token_id"] = end;
  config["eos_token_id"] = end;
}

const char* torch_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Half:
      return "float16";
    case at::ScalarType::BFloat16:
      return "bfloat16";
    case at::ScalarType::Double:
      return "float64";
    default:
      return "float32";
  }
}

// What transformers needs beside a bare tokenizer.json.
void add_tokenizer_config(const ModelFiles& model, const fs::path& dir) {
  if (!companion(model, "tokenizer.json") || companion(model, "tokenizer_config.json")) return;
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!end_of_text(model).is_null())
    for (const char* name : {"bos_token", "eos_token", "unk_token"}) config[name] = kEnd;
  write_flushed(dir / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace

bool is_hf(const fs::path& path) {
  return path.extension() == ".safetensors" || fs::exists(path / kConfigName);
}

ModelFiles open_hf(const fs::path& path) {
  check_io(fs::is_directory(path), path.string(),
           " is not a directory; a model needs config.json beside its tensors");
  fs::path config = path / kConfigName;
  check_io(fs::exists(config), config.string(), " is missing");
  ModelFiles model{.where = path.string(), .config = {}, .files = open_safetensors(path)};
  std::string yaml = gpt_neox_yaml(read_json(config), config.string());
  // A run of one step: what a configuration must say beside the model.
  yaml += "train_iters: 1\ntrain_micro_batch_size_per_gpu: 1\n";
  model.config = load_config({.texts = {{config.string() + ", as GPT-NeoX's keys", yaml}}});
  bool tied = model.config.model.tied_embedding;
  map_tensors(model, gpt_neox_names,
              [&](const std::string& name) { return gpt_neox_ignores(name, tied); });
  check_tied(model);
  for (const char* name : kCompanions)
    if (fs::exists(path / name)) model.companions.push_back({name, path / name});
  model.companions.push_back({kConfigName, config});
  return model;
}

void write_hf(const ModelFiles& model, const Target& target) {
  copy_companions(model, target.dir);
  std::vector<TensorInfo> infos;
  auto theirs = [](const ModelTensor& t) { return gpt_neox_names(t.info.name)[0]; };
  for (const ModelTensor& t : model.tensors) {
    infos.push_back(t.info);
    infos.back().name = theirs(t);
  }
  Json config = gpt_neox_json(model.config.model, torch_name(infos.at(0).dtype));
  add_token_ids(model, config);
  write_file_atomically(target.dir / kConfigName, config.dump(2) + "\n");
  add_tokenizer_config(model, target.dir);
  SafetensorsWriter writer(target.dir, infos, target.max_shard_bytes);
  for (const ModelTensor& t : model.tensors) writer.write(theirs(t), t.read().contiguous());
  writer.finish();
}

}  // namespace neox
