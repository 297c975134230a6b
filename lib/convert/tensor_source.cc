#include "convert/tensor_source.h"

#include <cstring>

namespace neox {
namespace {

struct Words {
  at::ScalarType dtype;
  const char* words;
};

constexpr Words kWords[] = {{at::ScalarType::Float, "fp32"},
                            {at::ScalarType::Half, "fp16"},
                            {at::ScalarType::BFloat16, "bf16"},
                            {at::ScalarType::Double, "fp64"}};

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  at::Tensor left = a.contiguous(), right = b.contiguous();
  return left.nbytes() == 0 ||
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

std::string type_words(at::ScalarType dtype) {
  for (const Words& w : kWords)
    if (w.dtype == dtype) return w.words;
  return c10::toString(dtype);
}

std::optional<at::ScalarType> parameter_type(const std::string& words) {
  for (const Words& w : kWords)
    if (w.words == words) return w.dtype;
  return std::nullopt;
}

}  // namespace neox
