// Directories of Hugging Face's transformers.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/raw_file.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert/json.h"
#include "convert/safetensors.h"
#include "convert/weights.h"

namespace neox {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kConfigName = "config.json";

// Beside config.json and the tensors.
constexpr const char* kCompanions[] = {
    "generation_config.json",  "tokenizer.json",    "tokenizer.model", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json",      "merges.txt",
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
OrderedJson find_end(const ModelFiles& model) {
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

OrderedJson end_of_text(const ModelFiles& model) {
  try {
    return find_end(model);
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::kIo, model.where,
         ": its tokenizer has another form than Hugging Face's: ", e.what());
  }
}

// Of the config.json that was converted once; "" where there was none.
std::string former_type(const ModelFiles& model) {
  const Companion* file = companion(model, kConfigName);
  if (!file) return "";
  nlohmann::json was = read_json(file->path);
  return was.is_object() && was.contains("model_type") && was["model_type"].is_string()
             ? was["model_type"].get<std::string>()
             : "";
}

// From the config.json that was converted once, else what the tokenizer says.
void add_token_ids(const ModelFiles& model, OrderedJson& config) {
  if (const Companion* file = companion(model, kConfigName)) {
    nlohmann::json was = read_json(file->path);
    for (const char* name : kTokenIds)
      if (was.contains(name)) config[name] = was[name];
    return;
  }
  OrderedJson end = end_of_text(model);
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
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!end_of_text(model).is_null())
    for (const char* name : {"bos_token", "eos_token", "unk_token"}) config[name] = kEnd;
  write_flushed(dir / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace

bool is_hf(const fs::path& path) { return is_weights_file(path) || fs::exists(path / kConfigName); }

ModelFiles open_hf(const fs::path& path) {
  check_io(fs::is_directory(path), path.string(),
           " is not a directory; a model needs config.json beside its tensors");
  fs::path config = path / kConfigName;
  check_io(fs::exists(config), config.string(), " is missing");
  nlohmann::json json = read_json(config);
  const HfFamily& family = family_of(json, config.string());
  ModelFiles model{.where = path.string(),
                   .config = config_of(family, json, config.string()),
                   .files = open_weights(path)};
  const ModelConfig& shape = model.config.model;
  map_pieces(
      model, [&](const ParamSpec& ours) { return pieces_of(family, shape, ours.name, ours.shape); },
      [&](const std::string& name) { return ignored_by(family, name, shape.tied_embedding); });
  check_tied(model);
  for (const char* name : kCompanions)
    if (fs::exists(path / name)) model.companions.push_back({name, path / name});
  model.companions.push_back({kConfigName, config});
  return model;
}

void write_hf(const ModelFiles& model, const Target& target) {
  const ModelConfig& shape = model.config.model;
  const HfFamily& family = family_for(shape, former_type(model));
  copy_companions(model, target.dir);
  std::vector<TensorInfo> infos;
  auto names = [&](const ModelTensor& t) {
    return pieces_of(family, shape, t.info.name, t.info.shape).pieces;
  };
  for (const ModelTensor& t : model.tensors)
    for (const Pieces::Piece& piece : names(t))
      infos.push_back({piece.names[0], t.info.dtype, piece.shape});
  OrderedJson config = json_of(family, shape, torch_name(infos.at(0).dtype));
  add_token_ids(model, config);
  write_file_atomically(target.dir / kConfigName, config.dump(2) + "\n");
  add_tokenizer_config(model, target.dir);
  SafetensorsWriter writer(target.dir, infos, target.max_shard_bytes);
  for (const ModelTensor& t : model.tensors) {
    std::vector<at::Tensor> pieces = take_apart(family, shape, t.info.name, t.read());
    for (size_t i = 0; i < pieces.size(); ++i) writer.write(names(t)[i].names[0], pieces[i]);
  }
  writer.finish();
}

}  // namespace neox
