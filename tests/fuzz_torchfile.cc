// Coverage-guided: any bytes as a file of torch.save, and as a pickle, are read as a whole or
// refused. Built and run by fuzz.sh with libFuzzer.
// Words: "PK\x03\x04" "PK\x01\x02" "PK\x05\x06" "PK\x06\x06" "PK\x06\x07" "a/data.pkl" "a/data/0"
// Words: "a/byteorder" "\x80\x02" "ctorch._utils\x0a_rebuild_tensor_v2\x0a"
// Words: "ctorch._utils\x0a_rebuild_tensor_v3\x0a" "ctorch._utils\x0a_rebuild_parameter\x0a"
// Words: "ctorch._tensor\x0a_rebuild_from_type_v2\x0a" "ctorch\x0aFloatStorage\x0a"
// Words: "ctorch.storage\x0aUntypedStorage\x0a" "ccollections\x0aOrderedDict\x0a"
// Words: "ccollections\x0adefaultdict\x0a" "cnumpy.core.multiarray\x0a_reconstruct\x0a"
// Words: "cnumpy.core.multiarray\x0ascalar\x0a" "cnumpy\x0adtype\x0a" "cnumpy\x0andarray\x0a"
// Words: "c_codecs\x0aencode\x0a" "cbuiltins\x0acomplex\x0a" "X\x07\x00\x00\x00storage"
// Words: "X\x02\x00\x00\x00f4" "latin1"
#include "base/error.h"
#include "torchfile/bytes.h"
#include "torchfile/pickle.h"
#include "torchfile/torch_file.h"

namespace {

using namespace neox;
using namespace neox::torchfile;

// Looks at so many values, and at the first and the last byte of tensors.
class Walk {
 public:
  void go(Value value) {
    if (--left_ < 0 || value.is(Kind::kNone)) return;
    if (value.is(Kind::kTensor)) look(value.tensor());
    for (Value part : value.items()) go(part);
    for (const Entry& entry : value.entries()) go(entry.key), go(entry.value);
    for (Value part : {value.arguments(), value.keywords(), value.state()}) go(part);
    if (value.type().size() > 1 << 20) left_ = 0;
  }

 private:
  void look(const TensorRef& tensor) {
    if (tensor.numel() == 0) return;
    int64_t last = tensor.offset, bytes = info(tensor.dtype).bytes;
    for (size_t d = 0; d < tensor.sizes.size(); ++d)
      last += (tensor.sizes[d] - 1) * tensor.strides[d];
    for (int64_t at : {tensor.offset * bytes, (last + 1) * bytes - 1})
      if (tensor.storage->bytes.data()[at] == std::byte{1}) --left_;
  }

  int left_ = 10000;
};

template <class Read>
void try_out(const Read& read) {
  try {
    read();
  } catch (const Error&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  try_out([&] {
    TorchFile file(bytes, "fuzz.pt");
    Walk().go(file.root());
    file.at("module.sequential.0.weight");
  });
  Document document;
  Records records{[&](std::string_view key) { return bytes_of(key); }, size % 2 == 1};
  try_out([&] { Walk().go(read_pickle(bytes, "fuzz.pkl", records, document)); });
  return 0;
}
