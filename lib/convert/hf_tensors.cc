// The tensors of the families, there and back.
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

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
std::vector<std::string> names_of(const std::string& theirs, const Name& name, int64_t expert) {
  std::vector<std::string> names = split(theirs, '|');
  for (std::string& each : names) {
    if (size_t star = each.find('*'); star != std::string::npos) each.replace(star, 1, name.layer);
    if (size_t at = each.find('#'); at != std::string::npos)
      each.replace(at, 1, std::to_string(expert));
    each += name.end;
  }
  return names;
}

bool is_stack(const HfTensor& entry) { return entry.theirs[0].find('#') != std::string::npos; }

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

constexpr int64_t kPaddingRows = 2;

Pieces behind_padding(std::vector<std::string> names, const Dims& shape) {
  Pieces pieces{.pieces = {{std::move(names), with_rows(shape, shape[0] + kPaddingRows)}},
                .note = concat("without ", kPaddingRows, " rows of padding")};
  pieces.join = [rows = shape[0]](const std::vector<Tensor>& read) {
    return read.at(0).narrow(0, kPaddingRows, rows);
  };
  return pieces;
}

// Of a matrix or vector, or of that of an expert.
Pieces pieces_of_one(const HfTensor& entry, const ModelConfig& model, const Name& name,
                     const Dims& shape, int64_t expert) {
  if (entry.form == HfTensor::kBehindPadding)
    return behind_padding(names_of(entry.theirs[0], name, expert), shape);
  Rows rows = rows_of(entry.form, model, shape[0]);
  bool turned = is_turned(entry.form) && shape.size() == 2, several = entry.theirs.size() > 1;
  Pieces pieces;
  for (size_t i = 0; i < entry.theirs.size(); ++i) {
    Dims theirs = several ? with_rows(shape, rows.blocks * rows.widths[i]) : shape;
    if (turned) std::ranges::reverse(theirs);
    pieces.pieces.push_back({names_of(entry.theirs[i], name, expert), theirs});
  }
  if (!turned && rows.widths.size() == 1) return pieces;
  pieces.note = note_of(entry.form);
  pieces.join = [rows, shape, turned](const std::vector<Tensor>& read) {
    return join_rows(read, rows, shape, turned);
  };
  return pieces;
}

std::vector<Tensor> take_one_apart(const HfTensor& entry, const ModelConfig& model,
                                   const Tensor& tensor) {
  if (entry.form == HfTensor::kBehindPadding)
    return {at::cat({at::zeros({kPaddingRows, tensor.size(1)}, tensor.options()), tensor})};
  bool turned = is_turned(entry.form) && tensor.dim() == 2;
  std::vector<Tensor> pieces =
      split_rows(tensor.contiguous(), rows_of(entry.form, model, tensor.size(0)));
  if (entry.theirs.size() < pieces.size()) pieces = {at::cat(pieces, 0)};
  for (Tensor& piece : pieces) piece = (turned ? piece.t() : piece).contiguous();
  return pieces;
}

}  // namespace

Pieces pieces_of(const HfFamily& family, const ModelConfig& model, const std::string& ours,
                 const Dims& shape) {
  Name name = parsed(ours);
  const HfTensor& entry = entry_of(family, name);
  if (!is_stack(entry)) return pieces_of_one(entry, model, name, shape, 0);
  Pieces all{.note = "by experts"};
  std::function<Tensor(const std::vector<Tensor>&)> join;  // of each
  for (int64_t e = 0; e < shape[0]; ++e) {
    Pieces one = pieces_of_one(entry, model, name, {shape.begin() + 1, shape.end()}, e);
    all.pieces.insert(all.pieces.end(), one.pieces.begin(), one.pieces.end());
    join = one.join;
  }
  all.join = [join, n = std::ssize(entry.theirs)](const std::vector<Tensor>& read) {
    std::vector<Tensor> experts;
    for (auto from = read.begin(); from != read.end(); from += n)
      experts.push_back(join ? join({from, from + n}) : *from);
    return at::stack(experts);
  };
  return all;
}

std::vector<Tensor> take_apart(const HfFamily& family, const ModelConfig& model,
                               const std::string& ours, const Tensor& tensor) {
  const HfTensor& entry = entry_of(family, parsed(ours));
  if (!is_stack(entry)) return take_one_apart(entry, model, tensor);
  std::vector<Tensor> all;
  for (const Tensor& expert : tensor.unbind(0))
    for (Tensor& piece : take_one_apart(entry, model, expert)) all.push_back(piece);
  return all;
}

std::string ignored_by(const HfFamily& family, const std::string& theirs, bool tied) {
  Name head{"embed_out", "", ".weight"};
  auto heads = names_of(entry_of(family, head).theirs[0], head, 0);
  if (tied && std::ranges::count(heads, theirs) > 0) return "tied to the embedding";
  // A buffer of a layer, or, as transformers has it since 4.48, one of all of them.
  auto is_buffer = [&](std::string_view layers, std::string_view end) {
    std::string_view model = layers.substr(0, layers.rfind('.', layers.size() - 2));
    return (theirs.starts_with(layers) && theirs.ends_with(end)) || theirs == concat(model, end);
  };
  for (const HfBuffer& buffer : family.buffers)
    for (const char* layers : family.layers)
      if (is_buffer(layers, buffer.end)) return buffer.reason;
  return "";
}

}  // namespace neox
