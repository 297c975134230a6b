#include "convert/model_files.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
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
  constexpr double kMostHalf = 65504;
  if (dtype == at::ScalarType::Half && from.scalar_type() != dtype && from.numel() > 0) {
    auto most = from.abs().max().item<double>();
    check_io(!(most > kMostHalf) || std::isinf(most), name, " has values up to ", most,
             ", which fp16 cannot hold; convert to bf16 or fp32");
  }
  return from.to(dtype);
}

using Infos = std::map<std::string, const TensorInfo*>;

// Takes the parameter out of what is left.
ModelTensor take(const ModelFiles& model, const ParamSpec& spec, const Names& names, Infos& left) {
  std::vector<std::string> known;
  for (const std::string& name : names(spec.name)) {
    known.push_back(name);
    auto found = left.find(name);
    if (found == left.end()) continue;
    TensorInfo info = *found->second;
    check_io(info.shape == spec.shape, model.where, ": ", name, " is ", to_string(info.shape),
             ", but ", to_string(spec.shape), " by the configuration");
    bool floating = parameter_type(type_words(info.dtype)).has_value();
    check_io(floating, model.where, ": ", name, " has the type ", type_words(info.dtype),
             "; parameters are fp32, fp16, bf16 or fp64");
    left.erase(found);
    info.name = spec.name;
    auto files = model.files;
    return {info, {name}, [files, name] { return files->read(name); }};
  }
  std::vector<std::string> others;
  for (const auto& [name, info] : left) others.push_back(name);
  std::string near = nearest(known[0], others);
  fail(Exit::kIo, model.where, " has no ", join(known, " or "), " ", to_string(spec.shape),
       near.empty() ? "" : "; it has " + near);
}

}  // namespace

bool has_master(const ModelTensor& tensor) {
  return std::ranges::count(tensor.states, "param", &StateTensor::state) > 0;
}

std::vector<ParamSpec> parameters(const ModelConfig& config) {
  std::vector<ParamSpec> specs = {embedding_param(config).spec};
  auto add = [&](const std::vector<ModelParam>& params) {
    for (const ModelParam& p : params) specs.push_back(p.spec);
  };
  add(position_params(config));
  add(distance_params(config));
  for (int64_t layer = 0; layer < config.layers; ++layer) add(layer_params(config, layer));
  add(final_params(config));
  return specs;
}

void map_tensors(ModelFiles& model, const Names& names, const IgnoreRule& ignore) {
  Infos left;
  for (const TensorInfo& info : model.files->tensors()) left[info.name] = &info;
  for (const ParamSpec& spec : parameters(model.config.model))
    model.tensors.push_back(take(model, spec, names, left));
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

void drop_train_state(ModelFiles& model, const std::string& reason) {
  if (!model.train) return;
  model.train.reset();
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

std::string group_of(const std::string& name) {
  if (!name.starts_with("layers.")) return name;
  return name.substr(0, name.find('.', 7));
}

}  // namespace neox
