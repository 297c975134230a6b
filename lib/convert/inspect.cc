#include "convert/inspect.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

namespace neox {
namespace {

constexpr int64_t kPiece = 1 << 22;  // elements in double at a time

// Calls visit(piece in double) for the elements in order.
template <class Visit>
void each_piece(const at::Tensor& tensor, Visit visit) {
  at::Tensor flat = tensor.reshape({-1});
  for (int64_t at = 0; at < flat.numel(); at += kPiece)
    visit(flat.narrow(0, at, std::min(kPiece, flat.numel() - at)).to(at::kDouble));
}

// Parts that are numbers by their value: layers.2 before layers.10.
bool before(const std::string& a, const std::string& b) {
  auto key = [](const std::string& name) {
    std::vector<std::string> parts;
    for (const std::string& part : split(name, '/'))
      for (std::string word : split(part, '.')) {
        bool number = !word.empty() && word.find_first_not_of("0123456789") == word.npos;
        if (number && word.size() < 12) word.insert(0, 12 - word.size(), '0');
        parts.push_back(word);
      }
    return parts;
  };
  return key(a) < key(b);
}

std::vector<TensorInfo> sorted(const TensorSource& source) {
  std::vector<TensorInfo> infos = source.tensors();
  std::ranges::stable_sort(infos, before, &TensorInfo::name);
  return infos;
}

std::string number(double value) { return printed("%11.4g", value); }

std::string words(const Statistics& s) {
  std::string text = concat("  min", number(s.min), "  max", number(s.max), "  mean",
                            number(s.mean), "  std", number(s.deviation));
  if (s.not_finite > 0) text += concat("  NOT FINITE: ", with_commas(s.not_finite));
  return text;
}

// A line for each part of a name that the line before does not share; the last one has the tensor.
class Tree {
 public:
  void add(const TensorInfo& info, const std::string& rest) {
    std::string flat = info.name;
    std::ranges::replace(flat, '/', '.');
    std::vector<std::string> parts = split(flat, '.');
    size_t depth = 0;
    while (depth < open_.size() && depth + 1 < parts.size() && open_[depth] == parts[depth])
      ++depth;
    for (; depth + 1 < parts.size(); ++depth)
      text_ += concat(std::string(2 * depth, ' '), parts[depth], "\n");
    std::string line = std::string(2 * depth, ' ') + parts.back();
    line.resize(std::max(line.size() + 2, size_t{22}), ' ');
    line += to_string(info.shape) + " " + type_words(info.dtype);
    line.resize(std::max(line.size(), size_t{44}), ' ');
    text_ += line + rest + "\n";
    parts.pop_back();
    open_ = parts;
  }
  const std::string& text() const { return text_; }

 private:
  std::vector<std::string> open_;
  std::string text_;
};

std::string state_words(const fs::path& path) {
  Checkpoint checkpoint(checkpoint_in(path));
  return concat(checkpoint.dir().string(), "\n", to_json(checkpoint.state()));
}

struct Difference {
  std::string name, words;
  double relative = 0;
};

// Nothing where the bits are equal.
std::optional<Difference> compare(const std::string& name, const at::Tensor& a,
                                  const at::Tensor& b) {
  if (a.sizes() != b.sizes())
    return Difference{name, concat(to_string(a.sizes().vec()), " and ", to_string(b.sizes().vec())),
                      INFINITY};
  if (same_bits(a, b)) return std::nullopt;
  double apart = 0, size = 0, most = 0;
  each_piece(b, [&](const at::Tensor& piece) { size += (piece * piece).sum().item<double>(); });
  at::Tensor left = a.reshape({-1}), right = b.reshape({-1});
  for (int64_t at = 0; at < left.numel(); at += kPiece) {
    int64_t n = std::min(kPiece, left.numel() - at);
    at::Tensor d = left.narrow(0, at, n).to(at::kDouble) - right.narrow(0, at, n).to(at::kDouble);
    apart += (d * d).sum().item<double>();
    double here = d.abs().max().item<double>();  // NaN where there is one
    most = std::isnan(most) || std::isnan(here) ? NAN : std::max(most, here);
  }
  bool types = a.scalar_type() != b.scalar_type();
  double relative = apart == 0 ? 0 : std::sqrt(apart / size);
  if (std::isnan(relative)) relative = INFINITY;
  std::string text = concat("||a - b|| / ||b||", number(relative), "  max |a - b|", number(most));
  if (types)
    text += concat("  ", type_words(a.scalar_type()), " and ", type_words(b.scalar_type()));
  return Difference{name, text, relative};
}

using Readers = std::map<std::string, std::function<at::Tensor()>>;

Readers readers(const Format& format, const fs::path& path, bool as_model) {
  Readers result;
  if (as_model) {
    auto model = std::make_shared<ModelFiles>(format.open(path));
    for (const ModelTensor& t : model->tensors) result[t.info.name] = t.read;
    return result;
  }
  auto source = format.open_tensors(path);
  for (const TensorInfo& info : source->tensors())
    result[info.name] = [source, name = info.name] { return source->read(name); };
  return result;
}

std::string only_in(const Readers& these, const Readers& those, const fs::path& path) {
  std::string text;
  for (const auto& [name, read] : these)
    if (!those.contains(name)) text += concat("  ", name, "  only in ", path.string(), "\n");
  return text;
}

}  // namespace

Statistics statistics(const at::Tensor& tensor) {
  Statistics s{.elements = tensor.numel()};
  double squares = 0;
  int64_t n = 0;
  each_piece(tensor, [&](const at::Tensor& piece) {
    at::Tensor finite = piece.masked_select(at::isfinite(piece));
    int64_t m = finite.numel();
    s.not_finite += piece.numel() - m;
    if (m == 0) return;
    double low = finite.min().item<double>(), high = finite.max().item<double>();
    s.min = n == 0 ? low : std::min(s.min, low);
    s.max = n == 0 ? high : std::max(s.max, high);
    // Means and squares around them join as in Chan, Golub, LeVeque: Updating Formulae, 1979.
    double mean = finite.mean().item<double>(), step = mean - s.mean;
    auto a = static_cast<double>(n), b = static_cast<double>(m);
    squares += (finite - mean).square().sum().item<double>() + step * step * a * b / (a + b);
    s.mean += step * b / (a + b);
    n += m;
  });
  s.deviation = n > 0 ? std::sqrt(squares / static_cast<double>(n)) : 0;
  return s;
}

std::string inspect(const Format& format, const fs::path& path) {
  auto source = format.open_tensors(path);
  Tree tree;
  int64_t elements = 0, bytes = 0;
  for (const TensorInfo& info : sorted(*source)) {
    tree.add(info, words(statistics(source->read(info.name))));
    elements += num_elements(info.shape);
    bytes += info.bytes();
  }
  std::string text =
      concat(tree.text(), source->tensors().size(), " tensors, ", with_commas(elements),
             " elements, ", human_bytes(static_cast<double>(bytes)), "\n");
  return format.name == std::string("neox.cpp") ? state_words(path) + text : text;
}

Comparison diff(const Format& first, const fs::path& a, const Format& second, const fs::path& b) {
  bool as_models = &first != &second;
  Readers left = readers(first, a, as_models), right = readers(second, b, as_models);
  std::vector<Difference> found;
  int64_t both = 0;
  for (const auto& [name, read] : left) {
    auto other = right.find(name);
    if (other == right.end()) continue;
    ++both;
    if (auto difference = compare(name, read(), other->second())) found.push_back(*difference);
  }
  std::ranges::stable_sort(found, std::greater(), &Difference::relative);
  size_t width = 0;
  for (const Difference& d : found) width = std::max(width, d.name.size());
  std::string text;
  for (Difference& d : found) {
    d.name.resize(width, ' ');
    text += concat("  ", d.name, "  ", d.words, "\n");
  }
  std::string alone = only_in(left, right, a) + only_in(right, left, b);
  text += concat(alone, both - static_cast<int64_t>(found.size()), " of ", both,
                 " tensors that both have are equal bit for bit\n");
  return {.text = text, .equal = found.empty() && alone.empty()};
}

}  // namespace neox
