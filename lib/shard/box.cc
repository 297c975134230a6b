#include "shard/box.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace neox {
namespace {

// Elements [begin, end) of `box`, whose dimensions before `dim` have extent 1; offset counts from
// the outermost box.
void cover_from(const Box& box, int64_t begin, int64_t end, size_t dim, int64_t offset,
                const std::function<void(const Box&, int64_t)>& visit) {
  if (begin >= end) return;
  if (begin == 0 && end == box.numel()) return visit(box, offset);
  int64_t row = box.numel() / box.extent[dim];
  auto rows = [&](int64_t first, int64_t count) {
    Box part = box;
    part.start[dim] += first;
    part.extent[dim] = count;
    return part;
  };
  auto inside = [&](int64_t r, int64_t from, int64_t to) {
    cover_from(rows(r, 1), from, to, dim + 1, offset + r * row, visit);
  };
  int64_t first = begin / row, last = end / row;
  if (first == last) return inside(first, begin - first * row, end - first * row);
  if (begin % row) inside(first, begin % row, row), ++first;
  if (first < last) visit(rows(first, last - first), offset + first * row);
  if (end % row) inside(last, 0, end % row);
}

}  // namespace

int64_t num_elements(const Dims& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d) text += (d ? ", " : "") + std::to_string(dims[d]);
  return text + "]";
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.start.size(); ++d)
    text += concat(d ? ", " : "", box.start[d], ":", box.start[d] + box.extent[d]);
  return text + "]";
}

Box whole(const Dims& shape) { return {Dims(shape.size(), 0), shape}; }

Box tp_box(const ParamSpec& param, int rank, int size) {
  Box box = whole(param.shape);
  if (!param.tp_dim) return box;
  auto dim = static_cast<size_t>(*param.tp_dim);
  check_usage(param.shape[dim] % size == 0, param.name, " ", to_string(param.shape), ": dimension ",
              dim, " is not divisible by model_parallel_size ", size);
  box.extent[dim] /= size;
  box.start[dim] = rank * box.extent[dim];
  return box;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both = a;
  for (size_t d = 0; d < a.start.size(); ++d) {
    int64_t from = std::max(a.start[d], b.start[d]);
    int64_t to = std::min(a.start[d] + a.extent[d], b.start[d] + b.extent[d]);
    if (from >= to) return std::nullopt;
    both.start[d] = from;
    both.extent[d] = to - from;
  }
  return both;
}

void cover(const Box& box, int64_t begin, int64_t end,
           const std::function<void(const Box&, int64_t)>& visit) {
  cover_from(box, begin, end, 0, 0, visit);
}

void copy_shared(const Box& from, const std::byte* source, const Box& to, std::byte* target,
                 size_t item) {
  std::optional<Box> both = intersect(from, to);
  if (!both) return;
  size_t dims = both->start.size();
  auto offset = [&](const Box& box, const Dims& at) {
    int64_t flat = 0;
    for (size_t d = 0; d < dims; ++d) flat = flat * box.extent[d] + at[d] - box.start[d];
    return static_cast<size_t>(flat) * item;
  };
  // Trailing dimensions that both boxes hold whole make one contiguous run together with the one
  // before them.
  size_t split = dims;
  int64_t run = 1;
  while (split > 0) {
    run *= both->extent[--split];
    if (both->extent[split] != from.extent[split] || both->extent[split] != to.extent[split]) break;
  }
  Dims at = both->start;
  while (true) {
    std::memcpy(target + offset(to, at), source + offset(from, at),
                static_cast<size_t>(run) * item);
    size_t d = split;
    while (d > 0 && ++at[d - 1] == both->start[d - 1] + both->extent[d - 1]) {
      at[d - 1] = both->start[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace neox
