// Writes files that PyTorch reads with torch.load(weights_only=True), objects aside.
//
//   Item module = Item::ordered_dict({{"weight", NewTensor{DType::kFloat32, {3, 4}, data}}});
//   write_torch_file("model.pt", Item::dict({{"module", module}, {"iteration", 1000}}));
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "torchfile/dtype.h"

namespace neox::torchfile {

struct NewTensor {
  using Write = std::function<void(std::span<const std::byte>)>;

  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  // Hands all elements over, row-major, in as many pieces as it likes. Called once, when it is this
  // tensor's turn, so that the tensors need not be in memory together.
  std::function<void(const Write& write)> data;
};

// What is to be written. Strings are UTF-8. A tensor that is to appear twice is one Item, copied:
// PyTorch then reads one tensor's storage twice.
class Item {
 public:
  using Items = std::vector<Item>;
  using Entries = std::vector<std::pair<Item, Item>>;
  struct List {
    Items items;
  };
  struct Tuple {
    Items items;
  };
  struct Bytes {
    std::string bytes;
  };
  struct Dict {
    bool ordered;
    Entries entries;
  };
  // With a class and its attributes; weights_only=True must be told of the class.
  struct Object {
    std::string module, name;
    Entries attributes;
  };
  // What a class or a function makes of arguments, as of an enum its number; weights_only=True must
  // be told of it.
  struct Call {
    std::string module, name;
    Items arguments;
  };
  using Tensor = std::shared_ptr<const NewTensor>;
  using Content = std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, List,
                               Tuple, Dict, Object, Call, Tensor>;

  Item() = default;  // None
  template <std::integral T>
  Item(T value) {
    if constexpr (std::same_as<T, bool>)
      content_ = value;
    else
      content_ = static_cast<int64_t>(value);
  }
  Item(double value) : content_(value) {}
  Item(std::string text) : content_(std::move(text)) {}
  Item(const char* text) : content_(std::string(text)) {}
  Item(NewTensor tensor) : content_(std::make_shared<const NewTensor>(std::move(tensor))) {}
  static Item bytes(std::string bytes) { return Item(Content(Bytes{std::move(bytes)})); }
  static Item list(Items items) { return Item(Content(List{std::move(items)})); }
  static Item tuple(Items items) { return Item(Content(Tuple{std::move(items)})); }
  static Item dict(Entries entries) { return Item(Content(Dict{false, std::move(entries)})); }
  static Item ordered_dict(Entries entries) {
    return Item(Content(Dict{true, std::move(entries)}));
  }
  static Item object(std::string module, std::string name, Entries attributes) {
    return Item(Content(Object{std::move(module), std::move(name), std::move(attributes)}));
  }
  static Item call(std::string module, std::string name, Items arguments) {
    return Item(Content(Call{std::move(module), std::move(name), std::move(arguments)}));
  }

  const Content& content() const { return content_; }

 private:
  explicit Item(Content content) : content_(std::move(content)) {}
  Content content_;
};

// The file appears under its name when it is whole. Throws (74) where it cannot be written, (70)
// where a tensor hands over another number of bytes than it has.
void write_torch_file(const fs::path& path, const Item& root);

struct NewFile {
  fs::path path;
  Item root;
};

// The same of several files side by side: the first tensor of each, then the second of each ..., so
// that what their tensors are made of is needed once. All have the same number of tensors.
void write_torch_files(const std::vector<NewFile>& files);

}  // namespace neox::torchfile
