#include "convert/megatron_tree.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "convert/megatron_names.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;
using Visit = std::function<void(const std::string& name, const torchfile::TensorRef& tensor)>;

void visit_tensors(Value tree, const std::string& name, const Visit& visit) {
  if (tree.is(Kind::kTensor)) return visit(name, tree.tensor());
  for (const torchfile::Entry& entry : tree.entries()) {
    if (!entry.key.is(Kind::kString) && !entry.key.is(Kind::kInt)) continue;  // no module's dict
    bool text = entry.key.is(Kind::kString);
    std::string key = text ? std::string(entry.key.text()) : concat(entry.key.as_int());
    visit_tensors(entry.value, name.empty() ? key : name + "." + key, visit);
  }
}

// Numbers the layer of a stage as in the whole model; `layers` becomes at least its number + 1.
std::string renumbered(const std::string& name, int64_t first, int64_t& layers) {
  for (std::string_view stem : {"encoder.layers.", "decoder.layers."}) {
    size_t at = name.find(stem);
    if (at == std::string::npos) continue;
    size_t begin = at + stem.size(), end = name.find('.', begin);
    bool digits = end != std::string::npos && end - begin < 6 && end > begin &&
                  std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                              name.begin() + static_cast<std::ptrdiff_t>(end),
                              [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) return name;
    int64_t layer = std::stoll(name.substr(begin, end - begin));
    layers = std::max(layers, layer + 1);
    return concat(name.substr(0, begin), first + layer, name.substr(end));
  }
  return name;
}

}  // namespace

int64_t add_tree(TensorParts& parts, const MegatronTree& tree) {
  int64_t layers = 0;
  visit_tensors(tree.tree, "", [&](const std::string& theirs, const auto& tensor) {
    std::string name =
        renumbered(megatron_name_now(tree.prefix + theirs), tree.first_layer, layers);
    std::vector<TensorPart>& held = parts[name];
    TensorPart part = file_part(tree.file, tensor, theirs);
    // Scales of fp8 have no meaning here, and no fixed size.
    if (name.ends_with("._extra_state") && !held.empty()) return;
    check_io(static_cast<int64_t>(held.size()) <= tree.rank, part.where, " is also in ",
             held.empty() ? "" : held.back().where);
    check_io(static_cast<int64_t>(held.size()) == tree.rank || name.ends_with("._extra_state"),
             part.where, " is not in the file of tensor-parallel rank ", held.size());
    held.push_back(std::move(part));
  });
  return layers;
}

void check_ranks(const TensorParts& parts, int64_t ranks, const std::string& where) {
  for (const auto& [name, held] : parts)
    check_io(static_cast<int64_t>(held.size()) == ranks || name.ends_with("._extra_state"), where,
             ": tensor-parallel rank ", held.size(), " of ", ranks, " has no ", name);
}

double number_at(Value value, const char* name) {
  std::optional<Value> number = value.find(name);
  bool is = number && (number->is(Kind::kInt) || number->is(Kind::kFloat));
  return is ? number->as_float() : 0;
}

void check_same_numbers(const TorchFile& a, const TorchFile& b,
                        std::initializer_list<const char*> names) {
  for (const char* name : names) {
    double of_a = number_at(a.root(), name), of_b = number_at(b.root(), name);
    check_io(of_a == of_b, b.name(), " has ", name, " ", of_b, ", but ", a.name(), " has ", of_a);
  }
}

}  // namespace neox
