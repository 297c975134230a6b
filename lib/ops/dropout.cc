#include "ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "ops/clones.h"
#include "ops/column_sums.h"
#include "ops/lanes.h"

namespace neox {
namespace {

using namespace lanes;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Maybe = std::optional<Tensor>;

constexpr int64_t kBits = 512;  // random words at a time

// The bits of positions 4 first .. 4 first + kBits - 1: lane (position % 4) of block position / 4.
[[gnu::always_inline]] inline void random_bits(uint64_t key, uint64_t sample, int64_t first,
                                               uint32_t* bits) {
  uint32_t word[4][kBits / 4];
  for (int64_t i = 0; i < kBits / 4; ++i) {
    Random4 block = philox(key, static_cast<uint64_t>(first + i), sample);
    for (int lane = 0; lane < 4; ++lane) word[lane][i] = block.v[lane];
  }
  for (int64_t i = 0; i < kBits / 4; ++i)
    for (int lane = 0; lane < 4; ++lane) bits[4 * i + lane] = word[lane][i];
}

// Elements from .. to - 1 of a row that lies in one sample, with their bits.
template <class T>
[[gnu::always_inline]] inline void mask_elements(const DropoutRows& r, int64_t row, int64_t from,
                                                 int64_t n, const uint32_t* bits,
                                                 Wide<T>* partial) {
  using W = Wide<T>;
  int64_t start = row * r.columns + from;
  const T *x = static_cast<const T*>(r.x) + start,
          *residual = r.residual ? static_cast<const T*>(r.residual) + start : nullptr,
          *bias = r.bias ? static_cast<const T*>(r.bias) + from : nullptr;
  T* y = static_cast<T*>(r.y) + start;
  auto scale = static_cast<W>(r.scale);
  for_lanes(
      n, [&](int64_t i, auto part) __attribute__((always_inline)) {
        Lanes<W> v = load(x + i, part), kept;
        if (bias) v = rounded<T>(v + load(bias + i, part));
        for (int64_t l = 0; l < kLanes; ++l) kept[l] = bits[i + l] < r.drop_below ? W(0) : scale;
        v = rounded<T>(kept == W(0) ? Lanes<W>{} : v * kept);
        if (partial) add_to(partial + from + i, v, part);
        if (residual) v += load(residual + i, part);
        store(y + i, v, part);
      });
}

template <class T>
NEOX_CLONES void mask_rows(const DropoutRows& r, int64_t first, int64_t last, Wide<T>* partial) {
  uint32_t bits[kBits + kLanes] = {};
  int64_t first_sample = r.first_sample ? *r.first_sample : 0;
  for (int64_t row = first; row < last; ++row) {
    int64_t start = (r.before + row) * r.stride, sample = start / r.per_sample;
    int64_t position = r.offset + start % r.per_sample;
    for (int64_t done = 0; done < r.columns;) {
      int64_t block = (position + done) / 4, skip = (position + done) % 4;
      int64_t n = std::min(kBits - skip, r.columns - done);
      random_bits(r.key, static_cast<uint64_t>(first_sample + sample), block, bits);
      mask_elements<T>(r, row, done, n, bits + skip, partial);
      done += n;
    }
  }
}

void dropout_cpu(const DropoutRows& r) {
  with_cpu_type(r.type, [&]<class T>(T*) {
    each_row_part(r.rows, r.parts, [&](int64_t from, int64_t to, int64_t p) {
      mask_rows<T>(r, from, to,
                   r.partial ? static_cast<Wide<T>*>(r.partial) + p * r.columns : nullptr);
    });
  });
}

// x as rows of its last dimension, or of a sample where that has none.
DropoutRows rows_of(const Tensor& x, double p, const DropoutSite& site) {
  int64_t samples = std::max<int64_t>(1, x.size(0)), per_sample = x.numel() / samples;
  int64_t columns = std::max<int64_t>(1, x.dim() > 1 ? x.size(-1) : per_sample);
  if (site.per_sample > 0) per_sample = site.per_sample;
  int64_t stride = site.row > 0 ? site.row : columns;
  DropoutRows r{element_of("dropout", x.scalar_type()),
                x.numel() / columns,
                columns,
                stride,
                per_sample,
                site.before / stride};
  r.parts = x.is_cuda() ? dropout_parts_cuda(r.rows, columns) : row_parts(r.rows);
  const Tensor& first = site.first_sample;
  check(!first.defined() || (first.device() == x.device() && first.scalar_type() == at::kLong),
        "dropout on ", x.device(), ": the number of the first sample is ", first.toString(), " on ",
        first.defined() ? first.device() : x.device());
  r.key = site.key;
  r.first_sample = first.defined() ? first.const_data_ptr<int64_t>() : nullptr;
  r.offset = site.offset;
  // p < 1 may be so near to it that it rounds to 2^32.
  r.drop_below = static_cast<uint32_t>(
      std::min<int64_t>(std::llround(p * 4294967296.0), std::numeric_limits<uint32_t>::max()));
  r.scale = 1 / (1 - p);
  r.x = x.const_data_ptr();
  return r;
}

void mask(const DropoutRows& r, const Tensor& like) {
  if (r.rows > 0) like.is_cuda() ? dropout_cuda(r) : dropout_cpu(r);
}

class DroppedSum : public torch::autograd::Function<DroppedSum> {
 public:
  static Tensor forward(AutogradContext* context, const Maybe& residual, const Tensor& given,
                        const Maybe& added, double p, const std::vector<int64_t>& site,
                        const Maybe& first_sample) {
    RECORD_FUNCTION("neox::dropout", std::vector<c10::IValue>({given}));
    Tensor x = given.contiguous(), y = at::empty_like(x), with = residual.value_or(Tensor()),
           bias = added.value_or(Tensor()), first = first_sample.value_or(Tensor());
    DropoutRows r = rows_of(x, p, site_of(site, first));
    if (with.defined()) with = with.contiguous();
    check(!with.defined() || (with.sizes() == x.sizes() && with.scalar_type() == x.scalar_type()),
          "dropout of ", x.sizes(), " to be added to ", with.defined() ? with.sizes() : x.sizes());
    check(!bias.defined() || (bias.sizes() == at::IntArrayRef{x.size(-1)} && bias.is_contiguous() &&
                              bias.scalar_type() == x.scalar_type()),
          "dropout of ", x.sizes(), " with a bias of ", bias.defined() ? bias.sizes() : x.sizes());
    if (with.defined()) r.residual = with.const_data_ptr();
    if (bias.defined()) r.bias = bias.const_data_ptr();
    r.y = y.mutable_data_ptr();
    mask(r, x);
    auto& saved = context->saved_data;
    saved["p"] = p;
    saved["site"] = site;
    context->save_for_backward({first});
    saved["residual"] = with.defined();
    saved["bias"] = bias.defined();
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto& saved = context->saved_data;
    Tensor dy = grad[0].contiguous(), dx = at::empty_like(dy), partial;
    DropoutRows r =
        rows_of(dy, saved["p"].toDouble(),
                site_of(saved["site"].toIntVector(), context->get_saved_variables()[0]));
    if (saved["bias"].toBool()) {
      partial = part_sums({r.parts, r.columns}, dy);
      r.partial = partial.mutable_data_ptr();
    }
    r.y = dx.mutable_data_ptr();
    mask(r, dy);
    return {saved["residual"].toBool() ? grad[0] : Tensor(),
            dx,
            partial.defined() ? sum_of_parts(partial) : partial,
            {},
            {},
            {}};
  }
};

}  // namespace

std::vector<int64_t> numbers_of(const DropoutSite& site) {
  return {static_cast<int64_t>(site.key), site.offset, site.before, site.per_sample, site.row};
}

DropoutSite site_of(const std::vector<int64_t>& numbers, const Tensor& first_sample) {
  return {static_cast<uint64_t>(numbers[0]),
          first_sample,
          numbers[1],
          numbers[2],
          numbers[3],
          numbers[4]};
}

Tensor dropout(const Tensor& x, double p, const DropoutSite& site) {
  if (p == 0) return x;
  return DroppedSum::apply(std::nullopt, x, std::nullopt, p, numbers_of(site),
                           Maybe(site.first_sample));
}

Tensor dropped_sum(const Tensor& residual, const Tensor& x, const Tensor& bias, double p,
                   const DropoutSite& site) {
  return DroppedSum::apply(Maybe(residual), x, Maybe(bias), p, numbers_of(site),
                           Maybe(site.first_sample));
}

}  // namespace neox
