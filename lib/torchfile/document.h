// What a tree of values is made of, for the files of this module.
#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "torchfile/value.h"

namespace neox::torchfile {

// What few values have.
struct Parts {
  std::string_view type;
  Value arguments, keywords, state;
  std::vector<Value> items;
  std::vector<Entry> entries;
};

struct Node {
  Kind kind = Kind::kNone;
  Parts* parts = nullptr;
  std::variant<std::monostate, bool, int64_t, double, std::complex<double>, std::string_view,
               std::vector<Value>, std::vector<Entry>, const TensorRef*, const Storage*>
      data;
};

// The node behind a handle, for those who build trees.
struct Handle {
  static const Node*& of(Value& value) { return value.node_; }
};

// Owns the nodes; deques, since nodes are pointed at.
struct Document {
  std::deque<Node> nodes;
  std::deque<Parts> parts;
  std::deque<TensorRef> tensors;
  std::deque<Storage> storages;
  std::deque<std::string> texts;
};

// Makes a tree of what the root leads to: a part that leads back to a value that it is a part of is
// replaced by kCycle. Throws (74) naming `file` where it is deeper than 500 values, where shared
// values unfold to more than 20 million, or where a dict has a key twice.
void settle(Document& document, Node* root, const std::string& file);

}  // namespace neox::torchfile
