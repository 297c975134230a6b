// The tensors of the families, there and back.
#include <ATen/ops/cat.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "convert/hf_family.h"

namespace neox {
namespace {

using at::Tensor;

// Our rows are [blocks, {widths ...}]: those of one width, of all blocks, are a tensor of theirs.
struct Rows {
  int64_t blocks = 1;
  std::vector<int64_t> widths;
};

Rows rows_of(HfTensor::Form form, const ModelConfig& c, int64_t rows) {
  int64_t D = c.head_size();
  switch (form) {
    case HfTensor::kQueryKeyValue:
    case HfTensor::kTurnedInThirds:
      return {c.groups(), {c.group_queries() * D, D, D}};
    case HfTensor::kGateUp:
      return {rows / 2, {1, 1}};
    default:
      return {1, {rows}};
  }
}

bool is_turned(HfTensor::Form form) {
  return form == HfTensor::kTurned || form == HfTensor::kTurnedInThirds;
}

const char* note_of(HfTensor::Form form) {
  switch (form) {
    case HfTensor::kTurned:
      return "transposed";
    case HfTensor::kQueryKeyValue:
      return "by heads";
    case HfTensor::kTurnedInThirds:
      return "transposed, by heads";
    case HfTensor::kGateUp:
      return "by columns";
    default:
      return "";
  }
}

// "layers.3.attention.dense.bias" is "layers.*.attention.dense", "3", ".bias".
struct Name {
  std::string pattern, layer, end;
};

Name parsed(const std::string& ours) {
  size_t dot = ours.rfind('.');
  Name name{ours.substr(0, dot), "", ours.substr(dot)};
  constexpr std::string_view kLayers = "layers.";
  if (!ours.starts_with(kLayers)) return name;
  size_t after = ours.find('.', kLayers.size());
  name.layer = ours.substr(kLayers.size(), after - kLayers.size());
  name.pattern.replace(kLayers.size(), name.layer.size(), "*");
  return name;
}

const HfTensor& entry_of(const HfFamily& family, const Name& name) {
  auto found = std::ranges::find(family.tensors, name.pattern, &HfTensor::ours);
  check(found != family.tensors.end(), family.architecture, " has no ", name.pattern, name.end);
  return *found;
}

// "a.*|b.*" for layer 3 is "a.3.bias", "b.3.bias".
std::vector<std::string> names_of(const char* theirs, const Name& name) {
  std::vector<std::string> names = split(theirs, '|');
  for (std::string& each : names) {
    if (size_t star = each.find('*'); star != std::string::npos) each.replace(star, 1, name.layer);
    each += name.end;
  }
  return names;
}

Dims with_rows(Dims shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

// Pieces to ours. One piece of several widths is their tensors one behind the other.
Tensor join_rows(std::vector<Tensor> pieces, const Rows& rows, const Dims& shape, bool turned) {
  if (turned)
    for (Tensor& piece : pieces) piece = piece.t();
  std::vector<int64_t> counts;
  for (int64_t width : rows.widths) counts.push_back(rows.blocks * width);
  if (pieces.size() < counts.size()) pieces = pieces.at(0).split_with_sizes(counts);
  for (size_t i = 0; i < pieces.size(); ++i) {
    Dims blocks = shape;
    blocks[0] = rows.widths[i];
    blocks.insert(blocks.begin(), rows.blocks);
    pieces[i] = pieces[i].reshape(blocks);
  }
  return at::cat(pieces, 1).view(shape);
}

std::vector<Tensor> split_rows(const Tensor& ours, const Rows& rows) {
  Dims blocks = ours.sizes().vec();
  blocks[0] /= rows.blocks;
  blocks.insert(blocks.begin(), rows.blocks);
  std::vector<Tensor> pieces;
  for (const Tensor& piece : ours.view(blocks).split_with_sizes(rows.widths, 1))
    pieces.push_back(piece.reshape(with_rows(ours.sizes().vec(), rows.blocks * piece.size(1))));
  return pieces;
}

}  // namespace

Pieces pieces_of(const HfFamily& family, const ModelConfig& model, const std::string& ours,
                 const Dims& shape) {
  Name name = parsed(ours);
  const HfTensor& entry = entry_of(family, name);
  Rows rows = rows_of(entry.form, model, shape[0]);
  bool turned = is_turned(entry.form) && shape.size() == 2, several = entry.theirs.size() > 1;
  Pieces pieces;
  for (size_t i = 0; i < entry.theirs.size(); ++i) {
    Dims theirs = several ? with_rows(shape, rows.blocks * rows.widths[i]) : shape;
    if (turned) std::ranges::reverse(theirs);
    pieces.pieces.push_back({names_of(entry.theirs[i], name), theirs});
  }
  if (!turned && rows.widths.size() == 1) return pieces;
  pieces.note = note_of(entry.form);
  pieces.join = [rows, shape, turned](const std::vector<Tensor>& read) {
    return join_rows(read, rows, shape, turned);
  };
  return pieces;
}

std::vector<Tensor> take_apart(const HfFamily& family, const ModelConfig& model,
                               const std::string& ours, const Tensor& tensor) {
  const HfTensor& entry = entry_of(family, parsed(ours));
  bool turned = is_turned(entry.form) && tensor.dim() == 2;
  std::vector<Tensor> pieces =
      split_rows(tensor.contiguous(), rows_of(entry.form, model, tensor.size(0)));
  if (entry.theirs.size() < pieces.size()) pieces = {at::cat(pieces, 0)};
  for (Tensor& piece : pieces) piece = (turned ? piece.t() : piece).contiguous();
  return pieces;
}

std::string ignored_by(const HfFamily& family, const std::string& theirs, bool tied) {
  Name head{"embed_out", "", ".weight"};
  auto heads = names_of(entry_of(family, head).theirs[0], head);
  if (tied && std::ranges::count(heads, theirs) > 0) return "tied to the embedding";
  bool of_layer = std::ranges::any_of(family.layers,
                                      [&](const char* begin) { return theirs.starts_with(begin); });
  if (!of_layer) return "";
  for (const HfBuffer& buffer : family.buffers)
    if (theirs.ends_with(buffer.end)) return buffer.reason;
  return "";
}

}  // namespace neox
