// Where state lives: boxes of named global tensors. Pure arithmetic, no tensors. Every piece of
// training state is a row-major box of a global tensor; saving, loading and resharding are
// intersections of boxes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace neox {

using Dims = std::vector<int64_t>;

int64_t num_elements(const Dims& shape);
std::string to_string(const Dims& dims);  // "[3, 4]"

struct Box {
  Dims start, extent;
  int64_t numel() const { return num_elements(extent); }
  bool operator==(const Box&) const = default;
};

std::string to_string(const Box& box);  // "[0:3, 4:8]"
Box whole(const Dims& shape);

// A parameter: its name, its global shape, and the one dimension that tensor parallelism splits.
struct ParamSpec {
  std::string name;
  Dims shape;
  std::optional<int> tp_dim;
  bool decay = true;  // weight decay applies
};

// The box of `rank` when tp_dim is split evenly over `size` ranks. Throws where it does not divide.
Box tp_box(const ParamSpec& param, int rank, int size);

std::optional<Box> intersect(const Box& a, const Box& b);

// Calls visit(box, offset) for the boxes that cover elements [begin, end) of `box` in row-major
// order; offset counts from the start of `box`. At most 2 * dims - 1 boxes.
void cover(const Box& box, int64_t begin, int64_t end,
           const std::function<void(const Box&, int64_t offset)>& visit);

// Copies the elements that two row-major boxes of one tensor share. item: bytes of an element.
void copy_shared(const Box& from, const std::byte* source, const Box& to, std::byte* target,
                 size_t item);

// Elements [offset, offset + box.numel()) of a flat buffer hold `box` of the global tensor `name`.
struct Placement {
  std::string name;
  Dims shape;  // global
  Box box;
  int64_t offset = 0;
};

}  // namespace neox
