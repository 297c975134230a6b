#include "torchfile/torch_writer.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <unordered_map>

#include "base/error.h"
#include "torchfile/bytes.h"
#include "torchfile/zip_writer.h"

namespace neox::torchfile {
namespace {

constexpr const char* kTop = "archive/";

int64_t numel(const NewTensor& tensor) {
  int64_t n = 1;
  for (int64_t size : tensor.sizes) n *= size;
  return n;
}

// A pickle of protocol 2, which torch.load(weights_only=True) expects, with the operations that it
// knows. Nothing but tensors is shared, so that the memo stays empty.
class Pickler {
 public:
  std::string pickle(const Item& root) {
    out_ = "\x80\x02";
    add(root);
    return std::move(out_) + ".";
  }
  // N of data/N is the place here.
  const std::vector<const NewTensor*>& tensors() const { return tensors_; }

 private:
  template <class T>
  void number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void global(std::string_view module, std::string_view name) {
    out_ += concat('c', module, '\n', name, '\n');
  }

  void add(const Item& item) {
    std::visit([this](const auto& content) { put(content); }, item.content());
  }
  void put(std::monostate) { out_ += 'N'; }
  void put(bool value) { out_ += value ? '\x88' : '\x89'; }
  void put(int64_t value) {
    if (value == static_cast<int32_t>(value)) {
      out_ += 'J';
      return number(static_cast<int32_t>(value));
    }
    out_ += "\x8a\x08";
    number(value);
  }
  void put(double value) {
    out_ += 'G';
    number(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
  }
  void put(const std::string& text) {
    check(text.size() <= UINT32_MAX, "a text of ", text.size(), " bytes is too long for a pickle");
    out_ += 'X';
    number(static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  void put(const Item::Bytes& bytes) {
    global("_codecs", "encode");
    std::string text;  // the characters whose numbers are the bytes
    for (char c : bytes.bytes) {
      auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x80) text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(byte >= 0x80 ? 0x80 | (byte & 0x3f) : byte);
    }
    put(text);
    put(std::string("latin1"));
    out_ += "\x86R";
  }
  void put(const Item::List& list) {
    out_ += "](";
    for (const Item& item : list.items) add(item);
    out_ += 'e';
  }
  void put(const Item::Tuple& tuple) {
    out_ += '(';
    for (const Item& item : tuple.items) add(item);
    out_ += 't';
  }
  void put(const Item::Dict& dict) {
    if (dict.ordered)
      put_ordered_dict();
    else
      out_ += '}';
    out_ += '(';
    for (const auto& [key, value] : dict.entries) add(key), add(value);
    out_ += 'u';
  }
  void put(const Item::Object& object) {
    global(object.module, object.name);
    out_ += ")\x81";
    put(Item::Dict{false, object.attributes});
    out_ += 'b';
  }
  void put(const Item::Call& call) {
    global(call.module, call.name);
    put(Item::Tuple{call.arguments});
    out_ += 'R';
  }
  void put_ordered_dict() {
    global("collections", "OrderedDict");
    out_ += ")R";
  }
  void put_sizes(const std::vector<int64_t>& sizes) {
    out_ += '(';
    for (int64_t size : sizes) put(size);
    out_ += 't';
  }

  void put(const Item::Tensor& tensor) {
    const DTypeInfo& type = info(tensor->dtype);
    bool typed = !type.storage.empty();
    std::vector<int64_t> strides(tensor->sizes.size());
    int64_t stride = 1;
    for (size_t d = strides.size(); d-- > 0; stride *= std::max<int64_t>(tensor->sizes[d], 1))
      strides[d] = stride;
    global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    out_ += "((";
    put(std::string("storage"));
    global(typed ? "torch" : "torch.storage", typed ? type.storage : "UntypedStorage");
    put(std::to_string(key_of(tensor.get())));
    put(std::string("cpu"));
    put(numel(*tensor) * (typed ? 1 : type.bytes));
    out_ += "tQ";
    put(int64_t{0});
    put_sizes(tensor->sizes);
    put_sizes(strides);
    put(false);
    put_ordered_dict();
    if (!typed) global("torch", type.name);
    out_ += "tR";
  }

  size_t key_of(const NewTensor* tensor) {
    auto [found, is_new] = keys_.try_emplace(tensor, tensors_.size());
    if (is_new) tensors_.push_back(tensor);
    return found->second;
  }

  std::string out_;
  std::vector<const NewTensor*> tensors_;
  std::unordered_map<const NewTensor*, size_t> keys_;
};

class OpenFile {
 public:
  explicit OpenFile(const NewFile& file) : zip_(file.path) {
    zip_.add(concat(kTop, "data.pkl"), pickler_.pickle(file.root));
    zip_.add(concat(kTop, ".format_version"), "1");
    zip_.add(concat(kTop, ".storage_alignment"), "64");
    zip_.add(concat(kTop, "byteorder"), "little");
  }
  size_t num_tensors() const { return pickler_.tensors().size(); }
  void write_tensor(size_t i) {
    const NewTensor& tensor = *pickler_.tensors()[i];
    zip_.begin(concat(kTop, "data/", i),
               static_cast<uint64_t>(numel(tensor) * info(tensor.dtype).bytes));
    tensor.data([&](std::span<const std::byte> bytes) { zip_.write(bytes); });
    zip_.end();
  }
  void publish() {
    zip_.add(concat(kTop, "version"), "3\n");
    zip_.publish();
  }

 private:
  Pickler pickler_;
  ZipWriter zip_;
};

}  // namespace

void write_torch_file(const fs::path& path, const Item& root) { write_torch_files({{path, root}}); }

void write_torch_files(const std::vector<NewFile>& files) {
  std::deque<OpenFile> open;
  for (const NewFile& file : files) {
    open.emplace_back(file);
    check(open.back().num_tensors() == open[0].num_tensors(), file.path.string(), ": has ",
          open.back().num_tensors(), " tensors, ", files[0].path.string(), " ",
          open[0].num_tensors());
  }
  for (size_t i = 0; !open.empty() && i < open[0].num_tensors(); ++i)
    for (OpenFile& file : open) file.write_tensor(i);
  for (OpenFile& file : open) file.publish();
}

}  // namespace neox::torchfile
