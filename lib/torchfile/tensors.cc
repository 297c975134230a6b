// Tensors and storages as PyTorch's files describe them: torch/_utils.py and torch/serialization.py
// of PyTorch 2.11.
#include <algorithm>
#include <utility>

#include "torchfile/builder.h"
#include "torchfile/bytes.h"

namespace neox::torchfile {
namespace {

constexpr int64_t kMax = INT64_MAX;
constexpr std::string_view kRebuildFromType = "torch._tensor._rebuild_from_type_v2";

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string described(const TensorRef& tensor) {
  const std::string& key = tensor.storage->key;
  return concat("a tensor of shape ", shape_text(tensor.sizes), ", strides ",
                shape_text(tensor.strides), " and offset ", tensor.offset, " in ",
                key.empty() ? "a NumPy array" : "data/" + key);
}

// Elements from the first to the last one; nothing where that is beyond 64 bits.
std::optional<int64_t> reach(const TensorRef& tensor) {
  int64_t last = tensor.offset;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    int64_t steps = 0;
    if (__builtin_mul_overflow(tensor.sizes[d] - 1, tensor.strides[d], &steps) ||
        __builtin_add_overflow(last, steps, &last))
      return {};
  }
  if (last == kMax) return {};
  return last + 1;
}

// Whether each dimension steps over all that the dimensions with smaller strides cover.
bool elements_apart(const TensorRef& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    if (tensor.sizes[d] > 1) dims.emplace_back(tensor.strides[d], tensor.sizes[d]);
  std::sort(dims.begin(), dims.end());
  int64_t covered = 1;
  for (auto [stride, size] : dims) {
    if (stride < covered) return false;
    covered += (size - 1) * stride;  // at most what reach() found
  }
  return true;
}

bool is_product_small(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product)) return false;
  return true;
}

// What the dictionary of a tensor's bits says.
bool is_set(Value metadata, std::string_view name) {
  for (const Entry& entry : metadata.entries())
    if (entry.key.is(Kind::kString) && entry.key.text() == name)
      return entry.value.is(Kind::kBool) && entry.value.as_bool();
  return false;
}

struct Description {
  Value storage, offset, sizes, strides;
  DType dtype;
  bool requires_grad = false;
  Value metadata;
};

Node* make(Builder& builder, const Description& described) {
  builder.check_pickle(described.offset.is(Kind::kInt), "the offset of a tensor is ",
                       kind_name(described.offset.kind()));
  TensorRef tensor;
  tensor.storage = &described.storage.storage();
  tensor.dtype = described.dtype;
  tensor.offset = described.offset.as_int();
  tensor.sizes = builder.sizes_of(described.sizes);
  tensor.strides = builder.sizes_of(described.strides);
  tensor.requires_grad = described.requires_grad;
  tensor.conjugate = is_set(described.metadata, "conj");
  tensor.negative = is_set(described.metadata, "neg");
  return builder.make_tensor(std::move(tensor));
}

bool is_true(std::span<const Value> arguments, size_t i) {
  return i < arguments.size() && arguments[i].is(Kind::kBool) && arguments[i].as_bool();
}

// (storage, offset, sizes, strides[, requires_grad, hooks[, metadata]]) of a typed storage.
Node* rebuild_tensor(Builder& builder, std::span<const Value> a) {
  if (a.size() < 4 || !a[0].is(Kind::kStorage)) return nullptr;
  std::optional<DType> dtype = a[0].storage().dtype;
  builder.check_pickle(dtype.has_value(), "the storage data/", a[0].storage().key,
                       " is of a type that is not read");
  return make(builder,
              {a[0], a[1], a[2], a[3], *dtype, is_true(a, 4), a.size() > 6 ? a[6] : Value()});
}

// (storage, offset, sizes, strides, requires_grad, hooks, dtype[, metadata]) of bytes.
Node* rebuild_tensor_v3(Builder& builder, std::span<const Value> a) {
  if (a.size() < 7 || !a[0].is(Kind::kStorage) || !a[6].is(Kind::kGlobal)) return nullptr;
  std::string_view name = a[6].text();
  std::optional<DType> dtype = dtype_named(name.starts_with("torch.") ? name.substr(6) : name);
  builder.check_pickle(dtype.has_value(), "the storage data/", a[0].storage().key, " is of type ",
                       name, ", which is not read");
  return make(builder,
              {a[0], a[1], a[2], a[3], *dtype, is_true(a, 4), a.size() > 7 ? a[7] : Value()});
}

// (tensor, requires_grad, hooks[, state])
Node* rebuild_parameter(Builder& builder, std::span<const Value> a) {
  if (a.size() < 3 || !a[0].is(Kind::kTensor)) return nullptr;
  TensorRef tensor = a[0].tensor();
  tensor.of = TensorRef::Class::kParameter;
  tensor.requires_grad = is_true(a, 1);
  Node* parameter = builder.make_tensor(std::move(tensor));
  if (a.size() > 3) builder.parts_of(*parameter).state = a[3];
  return parameter;
}

// (function, class, arguments, state): tensors with attributes, and subclasses. One that makes
// another one in turn stays an object: no program writes that, and it could go on without end.
Node* rebuild_from_type(Builder& builder, std::span<const Value> a) {
  if (a.size() != 4 || !a[0].is(Kind::kGlobal) || !a[1].is(Kind::kGlobal) ||
      !a[2].is(Kind::kTuple) || a[0].text() == kRebuildFromType)
    return nullptr;
  Node* made = builder.call(a[0], a[2]);
  bool known = a[1].text() == "torch.Tensor" || a[1].text() == "torch.nn.parameter.Parameter";
  if (!known || made->kind != Kind::kTensor)
    made = builder.make_object(a[1].text(),
                               Value(builder.make(Kind::kTuple, std::vector<Value>{Value(made)})));
  builder.parts_of(*made).state = a[3];
  return made;
}

Node* rebuild_meta(Builder& builder, std::span<const Value> a) {
  std::string shape = a.size() > 1 ? shape_text(builder.sizes_of(a[1])) : "";
  builder.check_pickle(false, "a tensor of shape ", shape,
                       " was on the meta device when it was saved: it has no data");
  return nullptr;
}

const NamedMeaning kTensors[] = {
    {"torch._utils._rebuild_tensor", rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", rebuild_tensor},
    {"torch._utils._rebuild_tensor_v3", rebuild_tensor_v3},
    {"torch._utils._rebuild_parameter", rebuild_parameter},
    {"torch._utils._rebuild_parameter_with_state", rebuild_parameter},
    {"torch._utils._rebuild_meta_tensor_no_storage", rebuild_meta},
    {kRebuildFromType, rebuild_from_type},
};

}  // namespace

std::span<const NamedMeaning> tensor_meanings() { return kTensors; }

std::vector<int64_t> Builder::sizes_of(Value tuple) const {
  check_pickle(tuple.is(Kind::kTuple) || tuple.is(Kind::kList), "a shape is ",
               kind_name(tuple.kind()), ", not a tuple");
  check_pickle(tuple.items().size() <= 64, "a shape has ", tuple.items().size(), " dimensions");
  std::vector<int64_t> sizes;
  for (Value item : tuple.items()) {
    check_pickle(
        item.is(Kind::kInt) && item.as_int() >= 0, "a shape or a stride is ",
        item.is(Kind::kInt) ? std::to_string(item.as_int()) : std::string(kind_name(item.kind())));
    sizes.push_back(item.as_int());
  }
  return sizes;
}

Node* Builder::make_tensor(TensorRef tensor) {
  charge(tensor.sizes.size());
  check_pickle(tensor.sizes.size() == tensor.strides.size() && tensor.offset >= 0,
               described(tensor), " cannot be");
  check_pickle(is_product_small(tensor.sizes), described(tensor), " is larger than any memory");
  int64_t room = static_cast<int64_t>(tensor.storage->bytes.size()) / info(tensor.dtype).bytes;
  if (tensor.numel() == 0) {
    check_pickle(tensor.offset <= room, described(tensor), " begins behind its ", room,
                 " elements");
  } else {
    std::optional<int64_t> end = reach(tensor);
    check_pickle(end && *end <= room, described(tensor), " reaches past its ", room, " elements");
    check_pickle(elements_apart(tensor), described(tensor),
                 " has elements that overlap, as of expand(): save a clone() of it");
  }
  return make(Kind::kTensor, &std::as_const(document_.tensors.emplace_back(std::move(tensor))));
}

// ("storage", class, key, location, elements)
Node* Builder::persistent(Value id) {
  std::span<const Value> a = id.items();
  bool known = id.is(Kind::kTuple) && a.size() >= 5 && a[0].is(Kind::kString) &&
               a[0].text() == "storage" && a[1].is(Kind::kGlobal) && a[2].is(Kind::kString) &&
               a[3].is(Kind::kString) && a[4].is(Kind::kInt) && a[4].as_int() >= 0;
  check_pickle(known, "a persistent id is not one of a storage");
  std::string_view type = a[1].text(), key = a[2].text();
  check_pickle(a[3].text() != "meta", "data/", key,
               " was on the meta device when it was saved: it has no data");
  charge(key.size() + a[3].text().size());
  Storage storage = {std::string(key), std::string(a[3].text())};
  for (std::string_view module : {"torch.cuda.", "torch."})
    if (type.starts_with(module) && !storage.dtype)
      storage.dtype = dtype_of_storage(type.substr(module.size()));
  storage.swapped = records_.swapped;
  storage.bytes = records_.data(key);
  if (type == "torch.storage.UntypedStorage") storage.dtype = DType::kUInt8;
  int64_t item = storage.dtype ? info(*storage.dtype).bytes : 1, bytes = 0;
  check_pickle(!__builtin_mul_overflow(a[4].as_int(), item, &bytes) &&
                   static_cast<uint64_t>(bytes) <= storage.bytes.size(),
               "data/", key, " has ", storage.bytes.size(), " bytes, ", a[4].as_int(),
               " elements of ", item, " bytes were expected");
  if (storage.dtype) storage.bytes = storage.bytes.first(static_cast<size_t>(bytes));
  return make(Kind::kStorage, &std::as_const(document_.storages.emplace_back(std::move(storage))));
}

}  // namespace neox::torchfile
