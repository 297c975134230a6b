#include "ops/random.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/error.h"

namespace neox {
namespace {

// Calls store(i, bits) for positions [begin, begin + n): bits is lane (position % 4) of block
// position / 4.
template <class Store>
void for_positions(uint64_t key, uint64_t sample, int64_t begin, int64_t n, const Store& store) {
  for (int64_t i = 0; i < n;) {
    int64_t position = begin + i;
    Random4 block = philox(key, static_cast<uint64_t>(position / 4), sample);
    for (int64_t lane = position % 4; lane < 4 && i < n; ++lane, ++i) store(i, block.v[lane]);
  }
}

uint32_t drop_below(double p) { return static_cast<uint32_t>(std::llround(p * 4294967296.0)); }

class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double p, int64_t key, int64_t first_sample, int64_t offset) {
    context->saved_data["p"] = p;
    context->saved_data["site"] = std::vector<int64_t>{key, first_sample, offset};
    return apply_mask(x, p, {static_cast<uint64_t>(key), first_sample, offset});
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list grad) {
    auto site = context->saved_data["site"].toIntVector();
    at::Tensor dx = apply_mask(grad[0], context->saved_data["p"].toDouble(),
                               {static_cast<uint64_t>(site[0]), site[1], site[2]});
    return {dx, {}, {}, {}, {}};
  }

 private:
  static at::Tensor apply_mask(const at::Tensor& x, double p, const DropoutSite& site) {
    at::Tensor in = x.contiguous(), out = at::empty_like(in);
    dropout_kernel(in, out, p, site);
    return out;
  }
};

template <class T>
void dropout_cpu(const T* x, T* y, int64_t samples, int64_t per_sample, double p,
                 const DropoutSite& site) {
  uint32_t threshold = drop_below(p);
  auto scale = static_cast<T>(1 / (1 - p));
  for (int64_t b = 0; b < samples; ++b) {
    const T* from = x + b * per_sample;
    T* to = y + b * per_sample;
    for_positions(site.key, static_cast<uint64_t>(site.first_sample + b), site.offset, per_sample,
                  [&](int64_t i, uint32_t bits) {
                    to[i] = bits < threshold ? T(0) : static_cast<T>(from[i] * scale);
                  });
  }
}

DropoutType dropout_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DropoutType::kFloat;
    case at::kDouble:
      return DropoutType::kDouble;
    case at::kHalf:
      return DropoutType::kHalf;
    case at::kBFloat16:
      return DropoutType::kBFloat16;
    default:
      fail(Exit::kInternal, "dropout: no kernel for type ", type);
  }
}

}  // namespace

uint64_t random_key(int64_t seed, std::string_view name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a, then mixed with the seed by Philox itself
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  Random4 mixed = philox(hash, static_cast<uint64_t>(seed), 0);
  return uint64_t{mixed.v[0]} << 32 | mixed.v[1];
}

void uniform_at(uint64_t key, int64_t begin, std::span<float> out) {
  for_positions(key, 0, begin, static_cast<int64_t>(out.size()), [&](int64_t i, uint32_t bits) {
    out[static_cast<size_t>(i)] = static_cast<float>(bits >> 8) * 0x1p-24f;
  });
}

at::Tensor dropout(const at::Tensor& x, double p, const DropoutSite& site) {
  if (p == 0) return x;
  return Dropout::apply(x, p, static_cast<int64_t>(site.key), site.first_sample, site.offset);
}

void dropout_kernel(const at::Tensor& x, at::Tensor& y, double p, const DropoutSite& site) {
  int64_t samples = x.size(0), per_sample = x.numel() / std::max<int64_t>(samples, 1);
  if (x.is_cuda()) {
    return dropout_cuda(x.const_data_ptr(), y.mutable_data_ptr(), dropout_type(x.scalar_type()),
                        x.numel(), per_sample, p, site);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "dropout", [&] {
    dropout_cpu(x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), samples, per_sample,
                p, site);
  });
}

}  // namespace neox
