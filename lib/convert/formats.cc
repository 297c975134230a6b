#include "convert/formats.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "convert/deepspeed_state.h"
#include "convert/json.h"
#include "convert/megatron.h"
#include "convert/weights.h"
#include "tokenizer/spm_model.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

std::shared_ptr<const TensorSource> open_hf_tensors(const fs::path& path) {
  return open_weights(path);
}

// DeepSpeed names the files of both.
bool is_neox_alone(const fs::path& path) { return is_neox(path) && !is_megatron_deepspeed(path); }
// Asked for by name.
bool never_found(const fs::path&) { return false; }

constexpr Format kFormats[] = {
    {"hf", "Hugging Face: a directory with config.json and its tensors", Format::Holds::kWeights,
     Format::Files::kWhole, is_hf, open_hf, open_hf_tensors, write_hf},
    {"neox.cpp", "a run directory of neox-train, or a global_step directory in it",
     Format::Holds::kTraining, Format::Files::kWhole, is_neox_cpp, open_neox_cpp,
     open_neox_cpp_tensors, write_neox_cpp},
    {"megatron", "Megatron-LM: mp_rank directories, --ckpt-format torch", Format::Holds::kWeights,
     Format::Files::kForRanks, is_megatron, open_megatron, open_megatron_tensors, write_megatron},
    {"megatron-dist", "Megatron-LM: torch_dist, read alone", Format::Holds::kWeights,
     Format::Files::kWhole, is_megatron_dist, open_megatron_dist, open_megatron_dist_tensors,
     write_megatron_dist},
    {"megatron-deepspeed", "Megatron-DeepSpeed: mp_rank or layer files in global_step",
     Format::Holds::kWeights, Format::Files::kForRanks, is_megatron_deepspeed,
     open_megatron_deepspeed, open_megatron_deepspeed_tensors, write_megatron_deepspeed},
    {"megatron-deepspeed-thirds", "the same with all queries first, since December 2024",
     Format::Holds::kWeights, Format::Files::kForRanks, never_found, open_megatron_deepspeed_thirds,
     open_megatron_deepspeed_tensors, write_megatron_deepspeed_thirds},
    {"neox", "GPT-NeoX: a save directory with `latest`, or a global_step directory in it",
     Format::Holds::kWeights, Format::Files::kForRanks, is_neox_alone, open_neox, open_neox_tensors,
     write_neox},
    {"neox-gqa-slots", "the same with num_kv_heads, of February to November 2024, read alone",
     Format::Holds::kWeights, Format::Files::kForRanks, never_found, open_neox_slots,
     open_neox_tensors, write_neox_slots},
    {"meta", "LLaMA of Meta's: params.json and consolidated.00.pth ..., read alone",
     Format::Holds::kWeights, Format::Files::kWhole, is_meta, open_meta, open_meta_tensors,
     write_meta},
};

// Is it the checkpoint of an iteration?
bool is_step(const fs::path& path) {
  std::string name = path.filename().string();
  bool named = name.starts_with("global_step") || name.starts_with("iter_") || name == "release";
  return named && fs::is_directory(path) &&
         std::ranges::any_of(kFormats, [&](const Format& f) { return f.is_there(path); });
}

// What to do with a path that is of no format. Where checkpoints are in it, it is a save directory
// without the file that names the newest, or without that one.
std::string name_another(const fs::path& path) {
  if (fs::is_directory(path))
    for (const auto& entry : fs::directory_iterator(path))
      if (is_step(entry))
        return concat("; it holds checkpoints, but no file in it names one of them as the newest: ",
                      "give one, such as ", entry.path().string());
  return "; name a directory with config.json and its tensors, or the save directory of a run";
}

std::string names() {
  std::vector<std::string> all;
  for (const Format& format : kFormats) all.push_back(format.name);
  return join(all, ", ");
}

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format& format_named(const std::string& name) {
  for (const Format& format : kFormats)
    if (name == format.name) return format;
  fail(Exit::kUsage, "the format '", name, "' is not known; there are ", names());
}

const Format& detect_format(const fs::path& path) {
  check_io(is_found(path), path.string(), " does not exist");
  const Format* found = nullptr;
  for (const Format& format : kFormats) {
    if (!format.is_there(path)) continue;
    check_io(!found, path.string(), " looks like ", found ? found->name : "", " and like ",
             format.name, "; say with --from which it is");
    found = &format;
  }
  if (!found) {
    check_no_unfinished_neox_cpp(path);
    check_latest(path);
  }
  check_io(found, path.string(), " looks like none of the formats ", names(),
           found ? "" : name_another(path));
  return *found;
}

const Format& format_of(const fs::path& path, const std::string& name) {
  return name.empty() ? detect_format(path) : format_named(name);
}

const Companion* companion(const ModelFiles& model, const std::string& name) {
  auto found = std::ranges::find(model.companions, name, &Companion::name);
  return found == model.companions.end() ? nullptr : &*found;
}

namespace {

// Whether a tokenizer's file can be read; else says why it does not go along: it may lie with
// somebody else.
bool goes_along(const fs::path& file, const std::string& of) {
  if (::access(file.c_str(), R_OK) == 0) return true;
  int error = errno;
  bool missing = error == ENOENT;
  log_warning("the tokenizer ", file.string(), ", with which ", of, " was trained, ",
              missing ? "is not there" : concat("cannot be read (", describe_errno(error), ")"),
              ", so it is not copied: ", missing ? "put it there" : "let it be read",
              " and convert again",
              file.is_relative() ? ", or do so in the directory that the run began in" : "");
  return false;
}

}  // namespace

bool add_tokenizer(ModelFiles& model) {
  const TokenizerConfig& t = model.config.tokenizer;
  if (t.vocab_file.empty() || !Tokenizer::reads_files(t.type)) return false;
  for (const fs::path& file : {t.vocab_file, t.merge_file})
    if (!file.empty() && !goes_along(file, model.where)) return false;
  bool single = t.merge_file.empty();
  std::string name = Tokenizer::is_sentencepiece(t.type) ? "tokenizer.model"
                     : Tokenizer::is_tiktoken(t.type)    ? t.vocab_file.filename().string()
                                                         : "tokenizer.json";
  model.companions.push_back({single ? name : "vocab.json", t.vocab_file});
  if (!single) model.companions.push_back({"merges.txt", t.merge_file});
  return true;
}

namespace {

// Whether transformers puts <s> in front of texts: as tokenizer_config.json says, or as the class
// does where it says nothing.
bool begins_texts(const ModelFiles& model) try {
  const Companion* found = companion(model, "tokenizer_config.json");
  if (!found) return false;
  nlohmann::json config = read_json(found->path);
  if (!config.is_object()) return false;
  if (config.contains("add_bos_token")) return config["add_bos_token"] == true;
  nlohmann::json name = config.value("tokenizer_class", nlohmann::json());
  return std::ranges::any_of(
      std::array{"Llama", "LLaMA", "CodeLlama", "Gemma"},
      [&](const char* c) { return name.is_string() && name.get<std::string>().starts_with(c); });
} catch (const Error& e) {
  log_warning(e.what(), "; texts are taken to begin without <s> (tokenizer_type: SPMTokenizer)");
  return false;
}

// A run's own type is known.
std::string sentencepiece_type(const ModelFiles& model) {
  const TokenizerConfig& t = model.config.tokenizer;
  if (!t.vocab_file.empty() && Tokenizer::is_sentencepiece(t.type)) return t.type;
  return begins_texts(model) ? "Llama2Tokenizer" : "SPMTokenizer";
}

// A tokenizer.json has the pieces of the tokenizer.model beside it, as transformers takes them, and
// the tokens of chats, which are plain text otherwise; but for one with tokens that the embedding
// has no row of, as LLaMA 2's <pad>, and one that can't be read.
bool takes_pieces(const ModelFiles& model) {
  const Companion *pieces = companion(model, "tokenizer.model"),
                  *json = companion(model, "tokenizer.json");
  if (!pieces || !json) return pieces != nullptr;
  try {
    return Tokenizer::from_json(json->path).vocab_size() > model.config.model.vocab;
  } catch (const Error& e) {
    log_warning(e.what(), "; tokenizer.model is taken");
    return true;
  }
}

// Of a file that may be missing; null where it is no JSON, which is said where it is copied.
nlohmann::json json_or_null(const Companion* file) try {
  return file ? read_json(file->path) : nlohmann::json();
} catch (const Error&) { return nullptr; }

// The first token of added_tokens.json that transformers has behind the others, of which there are
// `known`; "" where there is none. Those that the embedding has no row of were not trained.
std::string added_behind(const ModelFiles& model, int64_t known) {
  nlohmann::json added = json_or_null(companion(model, "added_tokens.json"));
  if (!added.is_object()) return "";
  for (const auto& [token, id] : added.items())
    if (id.is_number_integer() && id >= known && id < model.config.model.vocab) return token;
  return "";
}

// Says what transformers makes of vocab.json and merges.txt and GPT-2's rules do not. Whether there
// is nothing.
bool is_gpt2s(const ModelFiles& model) {
  constexpr const char* kSame[] = {"GPT2", "GPTNeoX", "CodeGen", "PreTrainedTokenizer"};
  nlohmann::json config = json_or_null(companion(model, "tokenizer_config.json"));
  nlohmann::json said =
      config.is_object() ? config.value("tokenizer_class", nlohmann::json()) : nlohmann::json();
  std::string name = said.is_string() ? said.get<std::string>() : "GPT2";
  auto begins = [&](const char* one) { return name.starts_with(one); };
  nlohmann::json vocab = json_or_null(companion(model, "vocab.json"));
  std::string added = added_behind(model, static_cast<int64_t>(vocab.size()));
  std::string differs;
  if (!std::ranges::any_of(kSame, begins))
    differs = concat("it is a ", name, ", not GPT-2's");
  else if (!added.empty())
    differs = concat("'", added, "' of added_tokens.json is not in vocab.json");
  else if (config.is_object() && config.value("add_bos_token", nlohmann::json()) == true)
    differs = "texts begin with a token (add_bos_token), as GPT-2's do not";
  if (differs.empty()) return true;
  log_warning("the tokenizer of ", model.where, " is not taken: ", differs,
              ". Have transformers write its tokenizer.json (AutoTokenizer.from_pretrained(DIR)"
              ".save_pretrained(DIR)), and convert again");
  return false;
}

void warn_of_plain_text(const ModelFiles& model) try {
  if (companion(model, "tokenizer.json")) return;
  auto known = std::ssize(read_spm_model(companion(model, "tokenizer.model")->path).pieces);
  if (std::string added = added_behind(model, known); !added.empty())
    log_warning("'", added, "' of added_tokens.json is plain text for the tokenizer of ",
                model.where,
                ", which is tokenizer.model. Where texts or conversations hold such "
                "tokens, have transformers write its tokenizer.json (AutoTokenizer.from_pretrained"
                "(DIR).save_pretrained(DIR)), and convert again");
} catch (const Error&) {}  // it is no such model, which is said where it is used

}  // namespace

void add_run_companions(ModelFiles& model, const fs::path& otherwise) {
  bool own = add_tokenizer(model);
  // A name alone has no parent.
  fs::path dir = own ? fs::absolute(model.config.tokenizer.vocab_file).parent_path() : otherwise;
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "config.json",
                           "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"})
    if (!dir.empty() && fs::exists(dir / name) && !companion(model, name))
      model.companions.push_back({name, dir / name});
  // Beside a run's own tokenizer it is another one.
  if (!own && !dir.empty() && fs::exists(dir / "tokenizer.model"))
    model.companions.push_back({"tokenizer.model", dir / "tokenizer.model"});
  choose_tokenizer(model);
  // What else a directory of Hugging Face's holds is the same tokenizer for other programs.
  bool theirs =
      own && (companion(model, "tokenizer_config.json") || companion(model, "config.json"));
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"})
    if (theirs && fs::exists(dir / name) && !companion(model, name))
      model.companions.push_back({name, dir / name});
}

void choose_tokenizer(ModelFiles& model) {
  auto has = [&](const char* name) { return companion(model, name) != nullptr; };
  const TokenizerConfig& t = model.config.tokenizer;
  auto ranks = std::ranges::find(model.companions, t.vocab_file, &Companion::path);
  if (Tokenizer::is_tiktoken(t.type) && ranks != model.companions.end())
    model.tokenizer = {t.type, ranks->name, ""};
  else if (takes_pieces(model))
    warn_of_plain_text(model), model.tokenizer = {sentencepiece_type(model), "tokenizer.model", ""};
  else if (has("tokenizer.json"))
    model.tokenizer = {"HFTokenizer", "tokenizer.json", ""};
  else if (has("vocab.json") && has("merges.txt") && is_gpt2s(model))
    model.tokenizer = {"GPT2BPETokenizer", "vocab.json", "merges.txt"};
}

std::optional<int64_t> entries_of(const ModelFiles& model, std::string* why) {
  const auto& found = model.tokenizer;
  if (!found) return std::nullopt;
  std::map<std::string, fs::path> files;
  for (const Companion& companion : model.companions) files[companion.name] = companion.path;
  try {
    return Tokenizer::of_type(found->type, files[found->vocab], files[found->merges]).vocab_size();
  } catch (const Error& e) {
    if (why) *why = e.what();
    return std::nullopt;
  }
}

int64_t vocab_multiple(const ModelFiles& model, int64_t tensor) {
  int64_t rows = model.config.model.vocab;
  check_usage(rows % tensor == 0, "the ", rows, " rows of the embedding cannot be shared out over ",
              tensor, " tensor-parallel ranks; give --padded-vocab with a multiple");
  int64_t all = model.config.tokenizer.pad_to_multiple * model.config.layout.tensor;
  auto entries = entries_of(model);
  bool fits = entries && all % tensor == 0 && (*entries + all - 1) / all * all == rows;
  return (fits ? all : rows) / tensor;
}

void copy_companions(const ModelFiles& model, const fs::path& dir) {
  make_directories(dir);
  for (const Companion& companion : model.companions) {
    std::string text = read_file(companion.path);
    if (companion.name.ends_with(".json") && !nlohmann::json::accept(text))
      log_warning(companion.path.string(), " is not valid JSON, and is copied as it is");
    write_file_atomically(dir / companion.name, text);
  }
}

}  // namespace neox
