// Makes the values of a pickle, and knows what the classes and functions named in PyTorch's files
// mean.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "torchfile/document.h"
#include "torchfile/pickle.h"

namespace neox::torchfile {

class Builder {
 public:
  // budget: how many values or bytes may be copied from one place to another, in all.
  Builder(Document& document, const std::string& file, const Records& records, uint64_t budget)
      : document_(document), file_(file), records_(records), budget_(budget) {}

  template <class Data>
  Node* make(Kind kind, Data data) {
    return &document_.nodes.emplace_back(Node{kind, nullptr, std::move(data)});
  }
  Node* make_none() { return &document_.nodes.emplace_back(); }
  // type: kept elsewhere.
  Node* make_object(std::string_view type, Value arguments, Value keywords = {});
  // A string that is not in the file.
  std::string_view keep(std::string text);
  Parts& parts_of(Node& node);

  // func(*arguments), cls.__new__(cls, *arguments, **keywords).
  Node* call(Value function, Value arguments, Value keywords = {});
  // The state of an object that was made before.
  void build(Node& object, Value state);
  // The storage with that persistent id.
  Node* persistent(Value id);

  void charge(uint64_t amount);
  template <class... Parts>
  void check_pickle(bool ok, const Parts&... parts) const {
    check_io(ok, file_, ": ", parts...);
  }

  // A tensor of those bytes; checks that its elements lie in the storage and do not overlap.
  Node* make_tensor(TensorRef tensor);
  Node* make_array(DType dtype, bool swapped, std::span<const std::byte> bytes,
                   std::vector<int64_t> sizes, bool fortran);
  // A tuple of ints that are not negative.
  std::vector<int64_t> sizes_of(Value tuple) const;
  Document& document() { return document_; }

 private:
  Document& document_;
  const std::string& file_;
  const Records& records_;
  uint64_t budget_;
};

// The meaning of a function: makes a value of its arguments, or nothing where these are not what it
// knows, and the call becomes an object.
using Meaning = Node* (*)(Builder&, std::span<const Value> arguments);
struct NamedMeaning {
  std::string_view name;
  Meaning meaning;
};
std::span<const NamedMeaning> tensor_meanings();
std::span<const NamedMeaning> python_meanings();
std::span<const NamedMeaning> numpy_meanings();

// Turns an array that numpy's _reconstruct made into a tensor, where its state is one of numbers.
void build_array(Builder& builder, Node& array, Value state);

inline constexpr std::string_view kEmptyArray = "numpy.ndarray";

}  // namespace neox::torchfile
