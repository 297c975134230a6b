// Every element of every tensor in exactly one box.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/catalog.h"

namespace neox {
namespace {

const std::string& file_of(const Catalog& catalog, const StoredBox& box) {
  return catalog.files[static_cast<size_t>(catalog.file_of(box))].name;
}

// Without the copies that intersect() makes: this runs for each pair of neighbours.
bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.start.size(); ++d)
    if (a.start[d] >= b.start[d] + b.extent[d] || b.start[d] >= a.start[d] + a.extent[d])
      return false;
  return true;
}

// Appends to `rest` the parts of `from` outside `hole`.
void subtract(Box from, const Box& hole, std::vector<Box>& rest) {
  std::optional<Box> both = intersect(from, hole);
  if (!both) return rest.push_back(from);
  for (size_t d = 0; d < from.start.size(); ++d) {
    int64_t begin = both->start[d], end = begin + both->extent[d];
    int64_t from_end = from.start[d] + from.extent[d];
    auto keep = [&](int64_t first, int64_t last) {
      Box part = from;
      part.start[d] = first, part.extent[d] = last - first;
      if (first < last) rest.push_back(part);
    };
    keep(from.start[d], begin);
    keep(end, from_end);
    from.start[d] = begin, from.extent[d] = both->extent[d];
  }
}

Box first_hole(const Dims& shape, std::span<const StoredBox* const> boxes) {
  std::vector<Box> holes = {whole(shape)};
  for (const StoredBox* box : boxes) {
    std::vector<Box> rest;
    for (const Box& hole : holes) subtract(hole, box->box, rest);
    holes = std::move(rest);
  }
  return holes.at(0);
}

// boxes: of one tensor, ascending in their first dimension.
void check_tensor(const Catalog& catalog, int64_t id, std::span<const StoredBox* const> boxes) {
  const Dims& shape = catalog.tensors[static_cast<size_t>(id)].shape;
  int64_t written = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i]->box;
    written += a.numel();
    for (size_t j = i + 1; j < boxes.size(); ++j) {
      const Box& b = boxes[j]->box;
      if (!shape.empty() && b.start[0] >= a.start[0] + a.extent[0]) break;
      check(!overlap(a, b), catalog.label(id), " ", to_string(shape), ": ",
            to_string(intersect(a, b).value_or(a)), " was written twice, into ",
            file_of(catalog, *boxes[i]), " and ", file_of(catalog, *boxes[j]));
    }
  }
  if (written == num_elements(shape)) return;
  fail(Exit::kInternal, catalog.label(id), " ", to_string(shape), ": ",
       with_commas(num_elements(shape) - written), " of ", with_commas(num_elements(shape)),
       " elements were written by no rank, among them ", to_string(first_hole(shape, boxes)));
}

}  // namespace

void check_covered_once(const Catalog& catalog) {
  std::vector<std::vector<const StoredBox*>> of(catalog.tensors.size());
  for (const StoredBox& box : catalog.boxes) of[static_cast<size_t>(box.tensor)].push_back(&box);
  for (size_t id = 0; id < of.size(); ++id) {
    std::ranges::sort(of[id], {}, [](const StoredBox* b) -> const Dims& { return b->box.start; });
    check_tensor(catalog, static_cast<int64_t>(id), of[id]);
  }
}

}  // namespace neox
