// Directories of Hugging Face's transformers.
#include <c10/util/accumulate.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/raw_file.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert/json.h"
#include "convert/safetensors.h"
#include "convert/weights.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/spm_model.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"

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

// Tokens that texts begin and end with, as tokenizer.cc takes them, and their numbers; or null.
struct TextTokens {
  OrderedJson begin = nullptr, end = nullptr;
  std::string begin_text = {}, end_text = {}, unknown_text = {};
};

// A head that is saved beside the embedding that it is tied to must not say something else.
void check_tied(const ModelFiles& model) {
  for (const Ignored& ignored : model.ignored) {
    if (!ignored.reason.starts_with("tied")) continue;
    at::Tensor embedding = model.tensors.at(0).read(), head = model.files->read(ignored.name);
    check_io(same_bits(embedding, head), model.where, ": tie_word_embeddings is true, but ",
             ignored.name, " differs from the embedding");
  }
}

// Of a tied model the head may be the one that is there, as safetensors' save_model() leaves it.
Pieces pieces_in(const HfFamily& family, const ModelConfig& shape, const ParamSpec& ours) {
  Pieces pieces = pieces_of(family, shape, ours.name, ours.shape);
  if (!shape.tied_embedding || ours.name != "embed_in.weight") return pieces;
  Pieces head = pieces_of(family, shape, "embed_out.weight", ours.shape);
  std::ranges::copy(head.pieces.at(0).names, std::back_inserter(pieces.pieces.at(0).names));
  return pieces;
}

// The token that a template puts in front of texts; "" where there is none.
std::string first_of_template(const nlohmann::json& processor) {
  if (!processor.is_object()) return "";
  for (const auto& part : processor.value("processors", nlohmann::json::array()))
    if (std::string found = first_of_template(part); !found.empty()) return found;
  nlohmann::json single = processor.value("single", nlohmann::json::array());
  if (single.empty() || !single[0].contains("SpecialToken")) return "";
  return single[0]["SpecialToken"].at("id");
}

TextTokens text_tokens_of_json(const nlohmann::json& json) {
  TextTokens tokens;
  for (const char* name : {"<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>"})
    for (const auto& token : json.value("added_tokens", nlohmann::json::array()))
      if (token.at("content") == name)
        tokens.end = token.at("id"), tokens.end_text = tokens.unknown_text = name;
  nlohmann::json bpe = json.value("model", nlohmann::json::object());
  if (bpe.contains("unk_token") && bpe["unk_token"].is_string())
    tokens.unknown_text = bpe["unk_token"];
  tokens.begin = tokens.end;
  tokens.begin_text = tokens.end_text;
  std::string first = first_of_template(json.value("post_processor", nlohmann::json()));
  for (const auto& token : json.value("added_tokens", nlohmann::json::array()))
    if (!first.empty() && token.at("content") == first)
      tokens.begin = token.at("id"), tokens.begin_text = first;
  return tokens;
}

TextTokens text_tokens_of_pieces(const SpmModel& model) {
  TextTokens tokens;
  if (int32_t id = model.control_piece(model.begin_of_text); id >= 0)
    tokens.begin = id, tokens.begin_text = model.begin_of_text;
  if (int32_t id = model.control_piece(model.end_of_text); id >= 0)
    tokens.end = id, tokens.end_text = model.end_of_text;
  auto unknown = std::ranges::find(model.pieces, SpmPiece::kUnknown, &SpmPiece::type);
  if (unknown != model.pieces.end()) tokens.unknown_text = unknown->text;
  return tokens;
}

// Nothing where pieces are of a kind that is not read here: they go along all the same.
std::optional<TextTokens> text_tokens_of_pieces(const fs::path& path) try {
  return text_tokens_of_pieces(read_spm_model(path));
} catch (const Error& e) {
  log_warning(e.what(), "; it goes along as it is, and transformers is told nothing of it");
  return std::nullopt;
}

// Of a run with tiktoken's ranks; else null.
const Companion* tiktoken_ranks(const ModelFiles& model) {
  const auto& found = model.tokenizer;
  return found && Tokenizer::is_tiktoken(found->type) ? companion(model, found->vocab) : nullptr;
}

TextTokens text_tokens_of_ranks(const fs::path& path) {
  TextTokens tokens;
  TokenizerFiles ranks = read_tiktoken(path);
  for (const AddedToken& token : ranks.added)
    if (token.content == "<|endoftext|>" || token.content == "<|end_of_text|>")
      tokens = {token.id, token.id, token.content, token.content, token.content};
  for (const AddedToken& token : ranks.added)
    if (ranks.begin == std::vector{token.id})
      tokens.begin = token.id, tokens.begin_text = token.content;
  return tokens;
}

std::optional<TextTokens> text_tokens(const ModelFiles& model) try {
  if (const Companion* file = companion(model, "tokenizer.model"))
    return text_tokens_of_pieces(file->path);
  if (const Companion* file = companion(model, "tokenizer.json"))
    return text_tokens_of_json(read_json(file->path));
  if (const Companion* file = tiktoken_ranks(model)) return text_tokens_of_ranks(file->path);
  TextTokens tokens;
  if (const Companion* file = companion(model, "vocab.json"))
    tokens.begin = tokens.end = read_json(file->path).value("<|endoftext|>", nlohmann::json());
  return tokens;
} catch (const nlohmann::json::exception& e) {
  fail(Exit::kIo, model.where, ": its tokenizer has another form than Hugging Face's: ", e.what());
}

// The model_type of a config.json; "" where it says none.
std::string type_of(const nlohmann::json& was) {
  return was.is_object() && was.contains("model_type") && was["model_type"].is_string()
             ? was["model_type"].get<std::string>()
             : "";
}

// Of the config.json that was converted once; "" where there was none.
std::string former_type(const ModelFiles& model) {
  const Companion* file = companion(model, kConfigName);
  return file ? type_of(read_json(file->path)) : "";
}

// Null also where pieces are of a kind that is not read here.
OrderedJson piece_id(const Companion* pieces, const std::string& text) try {
  if (!pieces) return nullptr;
  SpmModel read = read_spm_model(pieces->path);
  auto found = std::ranges::find(read.pieces, text, &SpmPiece::text);
  return found == read.pieces.end() ? OrderedJson() : OrderedJson(found - read.pieces.begin());
} catch (const Error&) { return nullptr; }

// The number of a token by its text; null where no file of the tokenizer has it.
OrderedJson id_of(const ModelFiles& model, const std::string& text) {
  if (const Companion* file = companion(model, "tokenizer.json")) {
    nlohmann::json json = read_json(file->path), empty = nlohmann::json::object();
    for (const auto& token : json.value("added_tokens", nlohmann::json::array()))
      if (token.at("content") == text) return token.at("id");
    nlohmann::json vocab = json.value("model", empty).value("vocab", empty);
    if (vocab.is_object() && vocab.contains(text)) return vocab[text];
  }
  for (const char* name : {"vocab.json", "added_tokens.json"})
    if (const Companion* file = companion(model, name))
      if (nlohmann::json json = read_json(file->path); json.is_object() && json.contains(text))
        return json[text];
  return piece_id(companion(model, "tokenizer.model"), text);
}

// What tokenizer_config.json and special_tokens_map.json say, where texts have ends of their own,
// as those of chats. An id that the embedding has no row of is none that transformers can load.
void add_said_ids(const ModelFiles& model, OrderedJson& config) try {
  const Companion *file = companion(model, "tokenizer_config.json"),
                  *map = companion(model, "special_tokens_map.json");
  if (!file && !map) return;
  const auto said = named_tokens(file ? file->path : "", map ? map->path : "");
  for (const char* name : {"bos_token", "eos_token", "pad_token"}) {
    auto token = said.find(name);
    if (token == said.end()) continue;
    OrderedJson id = id_of(model, token->second);
    if (id.is_number_integer() && id < model.config.model.vocab)
      config[concat(name, "_id")] = id;
    else
      log_warning((file ? file : map)->path.string(), ": ", name, " is '", token->second,
                  "', which the tokenizer or the embedding beside it does not have, so config.json "
                  "does not say it; correct it there");
  }
} catch (const nlohmann::json::exception& e) {
  fail(Exit::kIo, model.where, ": its tokenizer has another form than Hugging Face's: ", e.what());
}

// What the tokenizer says.
void add_token_ids(const ModelFiles& model, OrderedJson& config) {
  TextTokens tokens = text_tokens(model).value_or(TextTokens());
  config["bos_token_id"] = tokens.begin;
  config["eos_token_id"] = tokens.end;
  add_said_ids(model, config);
}

// By the model's type alone transformers would cut texts in another way than a tokenizer.json says.
void add_tokenizer_class(const ModelFiles& model, OrderedJson& config) {
  const Companion* file = companion(model, "tokenizer_config.json");
  if (!file || !companion(model, "tokenizer.json")) return;
  nlohmann::json said = read_json(file->path);
  if (!said.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
}

// What the config.json that was converted once says beside the model; after --padded-vocab ids may
// have lost their rows.
void add_former_fields(const Companion& former, const HfFamily& family, int64_t rows,
                       OrderedJson& config) {
  nlohmann::json was = read_json(former.path);
  auto take = [&](const char* name) {
    if (was.contains(name)) config[name] = was[name];
  };
  for (const char* name : kTokenIds) {
    take(name);
    auto id = config.find(name);
    if (id == config.end() || !id->is_number_integer() || *id < rows) continue;
    log_warning(former.path.string(), ": ", name, " is ", id->dump(), ", but only ", rows,
                " rows are left; config.json does not say it");
    *id = nullptr;
  }
  take("tokenizer_class");
  if (type_of(was) == family.type) std::ranges::for_each(family.silent, take);
}

// That of most elements.
at::ScalarType main_type(std::span<const TensorInfo> infos) {
  std::map<at::ScalarType, int64_t> elements;
  for (const TensorInfo& info : infos) elements[info.dtype] += c10::multiply_integers(info.shape);
  return std::ranges::max_element(elements, {}, [](const auto& e) { return e.second; })->first;
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

// What transformers needs beside a bare tokenizer.json or tokenizer.model.
void add_tokenizer_config(const ModelFiles& model, const fs::path& dir) {
  const auto& found = model.tokenizer;
  if (const Companion* file = tiktoken_ranks(model))
    write_flushed(dir / "tokenizer.json", tokenizer_json_of(read_tiktoken(file->path)));
  if (!found || companion(model, "tokenizer_config.json")) return;
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!found->merges.empty()) {  // by the model's type transformers would take another class
    config = {{"tokenizer_class", "GPT2Tokenizer"}};
    for (const char* name : {"bos_token", "eos_token", "unk_token"}) config[name] = "<|endoftext|>";
    write_flushed(dir / "tokenizer_config.json", config.dump(2) + "\n");
    return;
  }
  if (Tokenizer::is_sentencepiece(found->type))
    config = {{"tokenizer_class", "LlamaTokenizer"},
              {"add_bos_token", found->type == "Llama2Tokenizer"},
              {"add_eos_token", false}};
  std::optional<TextTokens> tokens = text_tokens(model);
  if (!tokens) return;
  for (const auto& [name, text] : {std::pair{"bos_token", tokens->begin_text},
                                   {"eos_token", tokens->end_text},
                                   {"unk_token", tokens->unknown_text}})
    if (!text.empty()) config[name] = text;
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
      model, [&](const ParamSpec& ours) { return pieces_in(family, shape, ours); },
      [&](const std::string& name) { return ignored_by(family, name, shape.tied_embedding); });
  check_tied(model);
  for (const char* name : kCompanions)
    if (fs::exists(path / name)) model.companions.push_back({name, path / name});
  model.companions.push_back({kConfigName, config});
  choose_tokenizer(model);
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
  OrderedJson config = json_of(family, shape, torch_name(main_type(infos)));
  if (const Companion* former = companion(model, kConfigName))
    add_former_fields(*former, family, shape.vocab, config);
  else
    add_token_ids(model, config), add_tokenizer_class(model, config);
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
