// What a PyTorch file holds, as a tree. A Value is a handle: it is valid as long as the TorchFile
// that it came from. Trees have no cycles and a limited depth (docs/formats.md), so that functions
// may call themselves for the parts of a value. Read-only; any thread.
//
//   TorchFile file("mp_rank_00_model_states.pt");
//   int64_t step = file.root().at("iteration").as_int();
//   const TensorRef& weight =
//   file.root().at("module.sequential.0.word_embeddings.weight").tensor();
#pragma once
#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "torchfile/dtype.h"

namespace neox::torchfile {

enum class Kind {
  kNone,
  kBool,
  kInt,      // 64-bit; also NumPy's scalars
  kBigInt,   // beyond 64 bits, as text: "-0x1f"
  kFloat,    // also NumPy's scalars
  kComplex,  // also NumPy's scalars
  kString,   // UTF-8, where Python had valid Unicode
  kBytes,    // bytes and bytearray
  kList,
  kTuple,    // also torch.Size
  kSet,      // also frozenset
  kDict,     // also OrderedDict, defaultdict, Counter: see type()
  kTensor,   // also Parameter and NumPy's arrays
  kStorage,  // a storage without a tensor
  kGlobal,   // a class or a function, by name: "torch.float16"
  kObject,   // of any other class
  kCycle,    // stands for a value that this value is a part of
};
std::string_view kind_name(Kind kind);  // "a dict"

// The bytes behind one or several tensors.
struct Storage {
  std::string key;                   // N of the record data/N; "" for a NumPy array
  std::string location;              // "cpu", "cuda:0": where the tensor was
  std::optional<DType> dtype;        // uint8: also an untyped one; nothing: not read
  std::span<const std::byte> bytes;  // a part of the file
  bool swapped = false;              // bytes of a number are in the order of a big-endian machine
};

// A view of a storage. All its elements lie in the storage, and no two of them share a byte.
struct TensorRef {
  enum class Class { kTensor, kParameter, kArray };
  const Storage* storage = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes, strides;  // strides count elements
  int64_t offset = 0;                   // of the first element, in elements
  Class of = Class::kTensor;
  bool requires_grad = false;
  bool conjugate = false, negative = false;  // the values are to be conjugated, negated

  int64_t numel() const;
};

struct Node;
struct Entry;

class Value {
 public:
  Value() = default;  // none
  explicit Value(const Node* node) : node_(node) {}

  Kind kind() const;
  bool is(Kind kind) const { return this->kind() == kind; }
  bool operator==(const Value&) const = default;  // the same object

  // Each throws (74) where the value is something else, saying what it is.
  bool as_bool() const;
  int64_t as_int() const;
  double as_float() const;  // also of an int
  std::complex<double> as_complex() const;
  std::string_view as_string() const;
  // Of a string, bytes, a big int, or a global.
  std::string_view text() const;
  const TensorRef& tensor() const;
  const Storage& storage() const;

  // Of a list, tuple or set; what was appended to an object.
  std::span<const Value> items() const;
  // Of a dict, in order; what was set in an object as in a dict.
  std::span<const Entry> entries() const;

  // The class of an object or a dict ("argparse.Namespace", "collections.OrderedDict"), "" for
  // plain ones. A function's name where an object was made by a function that is not known here.
  std::string_view type() const;
  // What an object was made with, and its state: for most classes a dict of its attributes.
  Value arguments() const;
  Value keywords() const;
  Value state() const;

  // The part with that path: keys of dicts, attributes of objects and indices of lists and tuples,
  // joined by dots. Keys may have dots themselves, and may be ints: "sequential.0.weight". Nothing
  // where there is none.
  std::optional<Value> find(std::string_view path) const;
  // Throws (74) where there is none, saying how far the path leads, and what is there.
  Value at(std::string_view path) const;

 private:
  friend struct Handle;
  std::optional<Value> child(std::string_view key) const;
  void check_kind(Kind wanted) const;

  const Node* node_ = nullptr;
};

struct Entry {
  Value key, value;
};

}  // namespace neox::torchfile
