#include "convert/tensor_source.h"

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
