#include "convert/model_files.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "model/parameters.h"

namespace neox {
namespace {

constexpr size_t kNamed = 5;  // in a message

bool splits_vocabulary(const std::string& name) {
  return name == "embed_in.weight" || name == "embed_out.weight";
}

at::Tensor cast(const at::Tensor& from, at::ScalarType dtype, const std::string& name) {
  at::Tensor made = from.to(dtype);
  if (from.scalar_type() == dtype || from.numel() == 0) return made;
  auto [least, greatest] = at::aminmax(made);
  if (std::isfinite(least.item<double>()) && std::isfinite(greatest.item<double>())) return made;
  // What is not finite stays so.
  if (!made.isinf().logical_and_(from.isfinite()).any().item<bool>()) return made;
  auto most = from.abs().nan_to_num(0, 0, 0).max().item<double>();
  const char* wider = most > std::numeric_limits<float>::max() ? "leave --dtype out"
                      : dtype == at::ScalarType::Half          ? "convert to bf16 or fp32"
                                                               : "convert to fp32";
  fail(Exit::kIo, name, " has values up to ", most, ", which ", type_words(dtype), " cannot hold; ",
       wider);
}

using Infos = std::map<std::string, const TensorInfo*>;

// Takes the piece out of what is left.
TensorInfo take(const ModelFiles& model, const Pieces::Piece& piece, Infos& left) {
  for (const std::string& name : piece.names) {
    auto found = left.find(name);
    if (found == left.end()) continue;
    TensorInfo info = *found->second;
    check_io(info.shape == piece.shape, model.where, ": ", name, " is ", to_string(info.shape),
             ", but ", to_string(piece.shape), " by the configuration");
    bool floating = parameter_type(type_words(info.dtype)).has_value();
    check_io(floating, model.where, ": ", name, " has the type ", type_words(info.dtype),
             "; parameters are fp32, fp16, bf16 or fp64");
    left.erase(found);
    return info;
  }
  std::vector<std::string> others;
  for (const auto& [name, info] : left) others.push_back(name);
  std::string near = nearest(piece.names.at(0), others);
  fail(Exit::kIo, model.where, " has no ", join(piece.names, " or "), " ", to_string(piece.shape),
       near.empty() ? "" : "; it has " + near);
}

ModelTensor take_all(const ModelFiles& model, const ParamSpec& spec, const Pieces& pieces,
                     Infos& left) {
  ModelTensor made{
      .info = {spec.name, {}, spec.shape}, .from = {}, .read = {}, .note = pieces.note};
  for (const Pieces::Piece& piece : pieces.pieces) {
    TensorInfo info = take(model, piece, left);
    bool first = made.from.empty();
    check_io(first || info.dtype == made.info.dtype, model.where, ": ", info.name, " is ",
             type_words(info.dtype), ", but ", first ? "" : made.from[0], ", which it belongs to, ",
             type_words(made.info.dtype),
             "; save both in one type first (--dtype casts what was joined)");
    made.info.dtype = info.dtype;
    made.from.push_back(info.name);
  }
  made.read = [files = model.files, names = made.from, join = pieces.join] {
    if (!join) return files->read(names[0]);
    std::vector<at::Tensor> read;
    for (const std::string& name : names) read.push_back(files->read(name));
    return join(read);
  };
  return made;
}

// What a parameter is to be multiplied by, and of which of its rows.
struct Fold {
  double factor = 1;
  bool queries_alone = false;
};

Fold fold_of(const std::string& name, const ModelConfig& m) {
  double scores = m.score_scale() * std::sqrt(static_cast<double>(m.head_size()));
  // A norm of embeddings gives the same whatever they are multiplied by.
  bool scaled = name == "embed_in.weight" && !m.embedding_norm;
  if (scaled || name.starts_with("embed_layernorm.")) return {m.embedding_scale()};
  if (name == "embed_positions.weight") return {m.embedding_scale() * m.position_scale()};
  if (name.starts_with("final_layer_norm."))  // a tied head has the embedding's factor too
    return {m.logit_scale() / (m.tied_embedding && !m.embedding_norm ? m.embedding_scale() : 1)};
  if (name.find(m.qk_norm ? ".query_layernorm." : ".query_key_value.") == std::string::npos)
    return {};
  return {scores, !m.qk_norm};
}

at::Tensor folded(const at::Tensor& from, const Fold& fold, const ModelConfig& m) {
  at::Tensor to = from.to(at::kDouble, false, true);
  if (fold.queries_alone) {
    int64_t G = m.group_queries(), D = m.head_size();
    to.view({m.groups(), G + 2, D, -1}).narrow(1, 0, G).mul_(fold.factor);
    return to;
  }
  return to.mul_(fold.factor);
}

}  // namespace

bool has_master(const ModelTensor& tensor) {
  return std::ranges::count(tensor.states, "param", &StateTensor::state) > 0;
}

void map_pieces(ModelFiles& model, const PiecesOf& pieces, const IgnoreRule& ignore) {
  Infos left;
  for (const TensorInfo& info : model.files->tensors()) left[info.name] = &info;
  for (const ParamSpec& spec : parameters(model.config.model))
    model.tensors.push_back(take_all(model, spec, pieces(spec), left));
  std::vector<std::string> unknown;
  for (const auto& [name, info] : left) {
    std::string reason = ignore(name);
    if (reason.empty())
      unknown.push_back(concat(name, " ", to_string(info->shape)));
    else
      model.ignored.push_back({name, reason});
  }
  if (unknown.empty()) return;
  size_t more = unknown.size() > kNamed ? unknown.size() - kNamed : 0;
  unknown.resize(unknown.size() - more);
  fail(Exit::kIo, model.where,
       " holds tensors that have no place in the model: ", join(unknown, ", "),
       more ? concat(" and ", more, " more") : "");
}

void map_tensors(ModelFiles& model, const Names& names, const IgnoreRule& ignore) {
  auto whole = [&](const ParamSpec& ours) { return Pieces{{{names(ours.name), ours.shape}}}; };
  map_pieces(model, whole, ignore);
}

void drop_train_state(ModelFiles& model, const std::string& reason) {
  if (!model.train && !model.open_train_state) return;
  model.train.reset();
  model.open_train_state = {};
  for (ModelTensor& t : model.tensors) t.states.clear();
  model.ignored.push_back({"state of the optimizer", reason});
}

void set_dtype(ModelFiles& model, at::ScalarType dtype) {
  drop_train_state(model, "with --dtype the weights alone are converted");
  for (ModelTensor& t : model.tensors) {
    t.info.dtype = dtype;
    t.read = [read = t.read, dtype, name = t.info.name] { return cast(read(), dtype, name); };
  }
}

void set_rows(ModelFiles& model, int64_t rows) {
  int64_t had = model.config.model.vocab;
  model.config.model.vocab = rows;
  if (rows == had) return;
  drop_train_state(model, "with --padded-vocab the weights alone are converted");
  for (ModelTensor& t : model.tensors) {
    if (!splits_vocabulary(t.info.name)) continue;
    t.info.shape[0] = rows;
    t.note = rows > had ? concat("rows ", had, "..", rows - 1, " are new, zeros")
                        : concat("rows ", rows, "..", had - 1, " are cut off");
    t.read = [read = t.read, shape = t.info.shape, had] {
      at::Tensor from = read(), to = at::zeros(shape, from.options());
      int64_t kept = std::min(had, shape[0]);
      to.narrow(0, 0, kept).copy_(from.narrow(0, 0, kept));
      return to;
    };
  }
}

void fold_multipliers(ModelFiles& model) {
  if (!model.config.model.mup) return;
  ModelConfig with = model.config.model;
  check_usage(with.position_embedding != PositionEmbedding::kSinusoidal ||
                  with.embedding_scale() * with.position_scale() == 1,
              model.where, ": muP multiplies its sinusoidal positions by ",
              with.embedding_scale() * with.position_scale(), ", which no other format can say");
  check_usage(with.norm_weights != NormWeights::kNone, model.where,
              ": muP's multipliers become factors of norms' weights, which norm: ", norm_name(with),
              " does not have");
  drop_train_state(model, "muP's multipliers become factors of the weights");
  for (ModelTensor& t : model.tensors) {
    Fold fold = fold_of(t.info.name, with);
    if (fold.factor == 1) continue;
    std::string what =
        concat(fold.queries_alone ? "queries " : "", "times ", fold.factor, " (muP)");
    t.note = t.note.empty() ? what : t.note + ", " + what;
    t.read = [read = t.read, fold, with, dtype = t.info.dtype, name = t.info.name] {
      return cast(folded(read(), fold, with), dtype, name);
    };
  }
  model.config.model.mup.reset();
}

std::string group_of(const std::string& name) {
  if (!name.starts_with("layers.")) return name;
  return name.substr(0, name.find('.', 7));
}

}  // namespace neox
