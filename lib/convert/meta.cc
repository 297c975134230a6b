// Checkpoints as Meta publishes LLaMA, and Mistral its models: params.json and the state dict of
// each model-parallel rank.
#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert/json.h"
#include "convert/megatron_parts.h"
#include "convert/meta_params.h"
#include "convert/safetensors.h"
#include "convert/torch_tensors.h"
#include "convert/weights.h"
#include "tokenizer/spm_model.h"

namespace neox {
namespace {

constexpr const char* kParamsFile = "params.json";
constexpr const char* kWholeFile = "consolidated.safetensors";
constexpr const char* kTokenizerFile = "tokenizer.model";
constexpr const char* kMetaEmbedding = "tok_embeddings.weight";
constexpr const char* kMetaHead = "output.weight";

// "consolidated.07.pth"
std::string file_of_rank(int64_t rank) {
  return concat("consolidated.", rank < 10 ? "0" : "", rank, ".pth");
}

// The rank that has a file of that name; -1 of other names.
int64_t rank_in(const std::string& name) {
  constexpr std::string_view kBegin = "consolidated.";
  int64_t rank = -1;
  if (name.starts_with(kBegin))
    std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), rank);
  return rank >= 0 && name == file_of_rank(rank) ? rank : -1;
}

std::set<int64_t> ranks_in(const fs::path& dir) {
  std::set<int64_t> ranks;
  for (const auto& entry : fs::directory_iterator(dir))
    if (int64_t rank = rank_in(entry.path().filename().string()); rank >= 0) ranks.insert(rank);
  return ranks;
}

struct RankFile {
  std::string name;
  std::shared_ptr<const TensorSource> tensors;
};

// The file of a whole model where it is there, else those of all ranks.
std::vector<RankFile> open_rank_files(const fs::path& dir) {
  check_io(fs::is_directory(dir), dir.string(), " is not a directory; a model of Meta's has ",
           kParamsFile, " and ", file_of_rank(0), " in one");
  std::set<int64_t> ranks = ranks_in(dir);
  fs::path whole = dir / kWholeFile;
  if (fs::exists(whole)) {
    if (!ranks.empty()) log_info(dir.string(), ": ", kWholeFile, " is read, .pth files are not");
    return {{whole.string(), std::make_shared<SafetensorsFile>(whole)}};
  }
  check_io(!ranks.empty(), dir.string(), " has neither ", file_of_rank(0), " nor ", kWholeFile);
  std::vector<RankFile> files;
  for (int64_t rank = 0; rank <= *ranks.rbegin(); ++rank) {
    fs::path file = dir / file_of_rank(rank);
    check_io(ranks.contains(rank), file.string(), " is missing; there is ",
             file_of_rank(*ranks.rbegin()));
    files.push_back({file.string(), std::make_shared<TorchTensors>(file)});
  }
  return files;
}

void check_has_names_of(const RankFile& other, const RankFile& file) {
  std::set<std::string> names;
  for (const TensorInfo& info : file.tensors->tensors()) names.insert(info.name);
  for (const TensorInfo& info : other.tensors->tensors())
    check_io(names.contains(info.name), file.name, " has no ", info.name, ", which ", other.name,
             " has; the files of all ranks have the same names: are these of one model?");
}

TensorParts rank_parts(const std::vector<RankFile>& files) {
  TensorParts parts;
  for (const RankFile& file : files) {
    check_has_names_of(files[0], file);
    check_has_names_of(file, files[0]);
    for (const TensorInfo& info : file.tensors->tensors())
      parts[info.name].push_back(
          {.where = concat(file.name, ": ", info.name),
           .dtype = info.dtype,
           .shape = info.shape,
           .read = [from = file.tensors, name = info.name] { return from->read(name); }});
  }
  return parts;
}

constexpr std::pair<std::string_view, TpSplit> kMetaSplits[] = {
    {".attention.wq.weight", TpSplit::kRows},    {".attention.wk.weight", TpSplit::kRows},
    {".attention.wv.weight", TpSplit::kRows},    {".attention.wo.weight", TpSplit::kColumns},
    {".feed_forward.w1.weight", TpSplit::kRows}, {".feed_forward.w2.weight", TpSplit::kColumns},
    {".feed_forward.w3.weight", TpSplit::kRows}, {kMetaHead, TpSplit::kRows}};

// The embedding of LLaMA 3 lies in runs of rows, which have all `dim` columns; before, in runs of
// columns.
std::map<std::string, TpForm> meta_forms(const TensorParts& parts, const nlohmann::json& dim) {
  std::map<std::string, TpForm> forms;
  for (const auto& [name, of] : parts) {
    for (const auto& [end, split] : kMetaSplits)
      if (name.ends_with(end)) forms[name] = {split};
    if (name != kMetaEmbedding) continue;
    bool rows = of[0].shape.size() == 2 && of[0].shape[1] == dim;
    forms[name] = {rows ? TpSplit::kRows : TpSplit::kColumns};
  }
  return forms;
}

// What the files of a directory hold.
struct MetaFiles {
  nlohmann::json params;
  std::string params_name;
  TensorParts parts;
  std::shared_ptr<const JoinedTensors> tensors;
};

MetaFiles open_meta_files(const fs::path& dir) {
  std::vector<RankFile> files = open_rank_files(dir);
  fs::path file = dir / kParamsFile;
  check_io(fs::exists(file), file.string(), " is missing, which says what the model is");
  MetaFiles all{.params = read_json(file),
                .params_name = file.string(),
                .parts = rank_parts(files),
                .tensors = {}};
  check_io(all.params.is_object(), all.params_name, " is not a dictionary");
  all.tensors = std::make_shared<JoinedTensors>(
      all.parts, meta_forms(all.parts, all.params.value("dim", nlohmann::json())));
  return all;
}

int64_t matrix_rows(const TensorSource& tensors, const std::string& name,
                    const std::string& where) {
  auto found = std::ranges::find(tensors.tensors(), name, &TensorInfo::name);
  check_io(found != tensors.tensors().end() && !found->shape.empty(), where, " has no matrix ",
           name);
  return found->shape[0];
}

// LLaMA 3.2's small models have one matrix for both, under both names.
bool head_is_embedding(const TensorParts& parts) {
  auto head = parts.find(kMetaHead);
  return head == parts.end() || std::ranges::equal(parts.at(kMetaEmbedding), head->second,
                                                   [](const auto& a, const auto& b) {
                                                     return same_bits(a.read(), b.read());
                                                   });
}

// The last ranks are missing where their shares of queries are.
void check_all_ranks(const MetaFiles& all, const ModelConfig& model, const std::string& where) {
  auto queries = all.parts.find("layers.0.attention.wq.weight");
  if (queries == all.parts.end() || queries->second[0].shape.empty()) return;
  int64_t share = queries->second[0].shape[0], rows = model.heads * model.head_size(),
          found = std::ssize(queries->second);
  bool missing = share > 0 && rows % share == 0 && rows / share > found;
  check_io(!missing, where, " has the files of ", found, " ranks, but ", queries->first,
           " is shared out over ", missing ? rows / share : 0, "; ", file_of_rank(found),
           " and those behind it are missing");
}

// Of LLaMA's and Mistral's architecture, by the names of the files.
HfFamily with_metas_names(HfFamily family) {
  using T = HfTensor;
  family.tensors = {{"embed_in", {"tok_embeddings"}},
                    {"layers.*.input_layernorm", {"layers.*.attention_norm"}},
                    {"layers.*.post_attention_layernorm", {"layers.*.ffn_norm"}},
                    {"layers.*.attention.query_key_value",
                     {"layers.*.attention.wq", "layers.*.attention.wk", "layers.*.attention.wv"},
                     T::kQueryKeyValue},
                    {"layers.*.attention.dense", {"layers.*.attention.wo"}},
                    {"layers.*.mlp.dense_h_to_4h",
                     {"layers.*.feed_forward.w1", "layers.*.feed_forward.w3"},
                     T::kGateUp},
                    {"layers.*.mlp.dense_4h_to_h", {"layers.*.feed_forward.w2"}},
                    {"final_layer_norm", {"norm"}},
                    {"embed_out", {"output"}}};
  return family;
}

// Of the rows of a head, Meta rotates neighbours; here row d and d + D / 2 are a pair.
// [heads, {D / 2, 2}, columns] -> [heads, {2, D / 2}, columns]
at::Tensor pairs_to_halves(const at::Tensor& rows, int64_t D) {
  return rows.view({-1, D / 2, 2, rows.size(1)}).transpose(1, 2).reshape(rows.sizes());
}

Pieces meta_pieces(const HfFamily& family, const ModelConfig& model, const ParamSpec& ours) {
  Pieces pieces = pieces_of(family, model, ours.name, ours.shape);
  if (!ours.name.ends_with(".query_key_value.weight")) return pieces;
  pieces.note += ", rotary pairs to halves";
  pieces.join = [join = pieces.join, D = model.head_size()](std::vector<at::Tensor> read) {
    for (size_t i : {0, 1}) read[i] = pairs_to_halves(read[i], D);  // queries, keys
    return join(read);
  };
  return pieces;
}

// Also that of each layer in the first release.
std::string meta_ignored(const HfFamily& family, const std::string& name, bool tied) {
  bool frequencies = name == "rope.freqs" || name.ends_with(".rope.freqs");
  return frequencies ? "follows from rope_theta" : ignored_by(family, name, tied);
}

// Beside the tensors, or, as Meta's download.sh lays it out, beside the directories of several
// sizes.
void add_metas_tokenizer(ModelFiles& model, const fs::path& dir) {
  fs::path above = fs::absolute(dir).lexically_normal();
  if (!above.has_filename()) above = above.parent_path();
  above = above.parent_path() / kTokenizerFile;
  fs::path file = fs::exists(dir / kTokenizerFile) ? dir / kTokenizerFile : above;
  if (!fs::exists(file)) return;
  if (file == above) log_info(model.where, ": the tokenizer above it is taken, ", above.string());
  // Meta's code begins all texts with <s>, those of LLaMA 3 with <|begin_of_text|>.
  bool ranks = holds_ranks(read_file(file));
  model.config.tokenizer.type = ranks ? "TiktokenTokenizer" : "Llama2Tokenizer";
  model.config.tokenizer.vocab_file = file;
  model.companions.push_back({ranks ? "llama3.tiktoken" : kTokenizerFile, file});
  choose_tokenizer(model);
}

}  // namespace

bool is_meta(const fs::path& path) {
  return fs::is_directory(path) && !has_weights(path) &&
         (fs::exists(path / kWholeFile) || !ranks_in(path).empty());
}

ModelFiles open_meta(const fs::path& path) {
  MetaFiles all = open_meta_files(path);
  const std::string where = path.string();
  MetaSizes sizes = {
      .vocab = matrix_rows(*all.tensors, kMetaEmbedding, where),
      .intermediate = matrix_rows(*all.tensors, "layers.0.feed_forward.w1.weight", where),
      .tied = head_is_embedding(all.parts)};
  nlohmann::json json = config_of_params(all.params, sizes, all.params_name);
  const HfFamily family = with_metas_names(family_of(json, all.params_name));
  ModelFiles model{.where = where,
                   .config = config_of(family, json, all.params_name + ", as config.json"),
                   .files = all.tensors};
  const ModelConfig& shape = model.config.model;
  check_all_ranks(all, shape, where);
  map_pieces(
      model, [&](const ParamSpec& ours) { return meta_pieces(family, shape, ours); },
      [&](const std::string& name) { return meta_ignored(family, name, shape.tied_embedding); });
  add_metas_tokenizer(model, path);
  return model;
}

std::shared_ptr<const TensorSource> open_meta_tensors(const fs::path& path) {
  return open_meta_files(path).tensors;
}

void write_meta(const ModelFiles&, const Target& target) {
  fail(Exit::kUsage, target.final_dir.string(),
       ": the form in which Meta publishes LLaMA is read, not written; --to hf writes what most "
       "programs read");
}

}  // namespace neox
