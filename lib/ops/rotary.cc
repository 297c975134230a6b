#include "ops/rotary.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

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

// One head: (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of the first 2 * half
// elements; the others as they are. from may be to.
template <class T>
[[gnu::always_inline]] inline void rotate_head(const T* from, T* to, const float* cos,
                                               const float* sin, Wide<T> sign, int64_t half) {
  using W = Wide<T>;
  for (int64_t i = 0; i < half; ++i) {
    W c = cos[i], s = sin[i] * sign, a = static_cast<W>(from[i]),
      b = static_cast<W>(from[i + half]);
    to[i] = static_cast<T>(a * c - b * s);
    to[i + half] = static_cast<T>(b * c + a * s);
  }
}

template <class T>
NEOX_CLONES void rotate_tokens(const HeadRows& r, int64_t from, int64_t to) {
  int64_t parts = r.queries + 2;
  for (int64_t row = from; row < to; ++row) {
    int64_t at = row % r.table_rows * r.half;
    for (int64_t head = 0; head < r.groups * parts; ++head) {
      T* x = static_cast<T*>(r.qkv) + (row * r.groups * parts + head) * r.D;
      if (head % parts != parts - 1) rotate_head<T>(x, x, r.cos + at, r.sin + at, 1, r.half);
    }
  }
}

// The gradient's elements of one head of one token, or null.
template <class T>
const T* head_of(const HeadRows& r, int64_t row, int64_t group, int64_t part) {
  int64_t which = std::max<int64_t>(0, part - r.queries + 1);  // q, k, v
  int64_t head = which == 0 ? group * r.queries + part : group;
  const int64_t* stride = r.stride[which];
  if (!r.from[which]) return nullptr;
  return static_cast<const T*>(r.from[which]) + row / r.T * stride[0] + head * stride[1] +
         row % r.T * stride[2];
}

// partial: [columns of qkv], to which the rows are added; or null.
template <class T>
NEOX_CLONES void gather_tokens(const HeadRows& r, int64_t from, int64_t to, Wide<T>* partial) {
  int64_t parts = r.queries + 2, columns = r.groups * parts * r.D;
  for (int64_t row = from; row < to; ++row) {
    int64_t at = row % r.table_rows * r.half;
    T* out = static_cast<T*>(r.qkv) + row * columns;
    for (int64_t head = 0; head < r.groups * parts; ++head) {
      int64_t part = head % parts, half = part == parts - 1 ? 0 : r.half;
      const T* x = head_of<T>(r, row, head / parts, part);
      T* y = out + head * r.D;
      if (!x) {
        std::fill(y, y + r.D, T(0));
        continue;
      }
      rotate_head<T>(x, y, r.cos + at, r.sin + at, -1, half);
      std::copy(x + 2 * half, x + r.D, y + 2 * half);
    }
    if (partial)
      for_lanes(
          columns, [&](int64_t i, auto some) __attribute__((always_inline)) {
            add_to(partial + i, load(out + i, some), some);
          });
  }
}

HeadRows rows_of(const Tensor& qkv, HeadGroups heads, const RotaryTable& rows) {
  int64_t parts = heads.groups * (heads.queries + 2);
  check(qkv.is_contiguous() && qkv.numel() % (qkv.size(0) * qkv.size(1) * parts) == 0,
        "the heads of ", qkv.sizes(), ": not contiguous, or not of ", parts, " parts");
  HeadRows r{element_of("rotary embedding", qkv.scalar_type()),
             qkv.size(0),
             qkv.size(1),
             heads.groups,
             heads.queries,
             qkv.numel() / (qkv.size(0) * qkv.size(1) * parts)};
  r.half = rows.cos.size(1);
  r.table_rows = rows.cos.size(0);
  r.cos = rows.cos.const_data_ptr<float>();
  r.sin = rows.sin.const_data_ptr<float>();
  r.qkv = qkv.mutable_data_ptr();
  return r;
}

void rotate(const HeadRows& r, bool cuda) {
  if (r.half == 0 || r.B * r.T == 0) return;
  if (cuda) return rotate_heads_cuda(r);
  with_cpu_type(r.type, [&]<class T>(T*) {
    at::parallel_for(0, r.B * r.T, 64,
                     [&](int64_t from, int64_t to) { rotate_tokens<T>(r, from, to); });
  });
}

void gather(const HeadRows& r, bool cuda) {
  int64_t rows = r.B * r.T, columns = r.groups * (r.queries + 2) * r.D;
  if (rows == 0) return;
  if (cuda) return head_gradients_cuda(r);
  with_cpu_type(r.type, [&]<class T>(T*) {
    each_row_part(rows, r.parts, [&](int64_t from, int64_t to, int64_t p) {
      gather_tokens<T>(r, from, to,
                       r.partial ? static_cast<Wide<T>*>(r.partial) + p * columns : nullptr);
    });
  });
}

// Tensors over qkv's memory, which autograd takes for tensors of their own.
tensor_list heads_over(const Tensor& qkv, const HeadRows& r) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Tensor all = qkv.view({r.B, r.T, r.groups, r.queries + 2, r.D});
  auto heads = [&](int64_t first, int64_t count) {
    return all.narrow(3, first, count).reshape({r.B, r.T, r.groups * count, r.D}).transpose(1, 2);
  };
  return {heads(0, r.queries), heads(r.queries, 1), heads(r.queries + 1, 1)};
}

class RotatedHeads : public torch::autograd::Function<RotatedHeads> {
 public:
  static tensor_list forward(AutogradContext* context, const Tensor& qkv,
                             const std::optional<Tensor>& bias, HeadGroups heads, Tensor cos,
                             Tensor sin) {
    RECORD_FUNCTION("neox::rotated_heads", std::vector<c10::IValue>({qkv}));
    HeadRows r = rows_of(qkv, heads, {cos, sin});
    rotate(r, qkv.is_cuda());
    auto& saved = context->saved_data;
    saved["groups"] = heads.groups;
    saved["queries"] = heads.queries;
    saved["cos"] = cos;
    saved["sin"] = sin;
    saved["shape"] = qkv.sizes().vec();
    saved["bias"] = bias->defined();
    context->set_materialize_grads(false);
    return heads_over(qkv, r);
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto& saved = context->saved_data;
    auto some = std::ranges::find_if(grad, [](const Tensor& g) { return g.defined(); });
    check(some != grad.end(), "no gradient reached the heads of queries, keys or values");
    Tensor dqkv = at::empty(saved["shape"].toIntVector(), some->options());
    HeadRows r = rows_of(dqkv, {saved["groups"].toInt(), saved["queries"].toInt()},
                         {saved["cos"].toTensor(), saved["sin"].toTensor()});
    for (size_t i = 0; i < 3; ++i) {
      if (!grad[i].defined()) continue;
      if (grad[i].stride(3) != 1) grad[i] = grad[i].contiguous();
      r.from[i] = grad[i].const_data_ptr();
      for (int64_t d : {0, 1, 2}) r.stride[i][d] = grad[i].stride(d);
    }
    int64_t rows = r.B * r.T, columns = dqkv.numel() / std::max<int64_t>(1, rows);
    r.parts = dqkv.is_cuda() ? head_parts_cuda(rows, columns) : row_parts(rows);
    Tensor partial;
    if (saved["bias"].toBool()) {
      partial = part_sums({r.parts, columns}, dqkv);
      r.partial = partial.mutable_data_ptr();
    }
    gather(r, dqkv.is_cuda());
    return {dqkv, partial.defined() ? sum_of_parts(partial) : partial, {}, {}, {}};
  }
};

// The share of a frequency that stays grows from 0 at low_freq_factor waves in the original context
// to 1 at high_freq_factor.
Tensor llama3_frequency(const Tensor& frequency, const RotaryScaling& s) {
  Tensor wavelength = 2 * std::numbers::pi / frequency;
  Tensor kept = ((static_cast<double>(s.original_positions) / wavelength - s.low_freq_factor) /
                 (s.high_freq_factor - s.low_freq_factor))
                    .clamp(0, 1);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

// That share falls from 1 at the pair that turns beta_fast times to 0 at that of beta_slow.
Tensor yarn_frequency(const Tensor& power, const RotaryAngles& a) {
  const RotaryScaling& s = a.scaling;
  auto pair_that_turns = [&](double times) {
    double waves = static_cast<double>(s.original_positions) / (times * 2 * std::numbers::pi);
    return static_cast<double>(a.rotary) * std::log(waves) / (2 * std::log(a.base));
  };
  double low = pair_that_turns(s.beta_fast), high = pair_that_turns(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(a.rotary - 1));
  if (low == high) high += 0.001;
  Tensor kept = 1 - ((at::arange(a.rotary / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  return (s.factor * power).reciprocal() * (1 - kept) + power.reciprocal() * kept;
}

// Of base^(2i / rotary).
Tensor frequency_of(const Tensor& power, const RotaryAngles& a) {
  if (a.scaling.factor == 1) return power.reciprocal();
  switch (a.scaling.kind) {
    case RotaryKind::kLinear:
      return power.reciprocal() / a.scaling.factor;
    case RotaryKind::kYarn:
      return yarn_frequency(power, a);
    case RotaryKind::kLlama3:
      break;
  }
  return llama3_frequency(power.reciprocal(), a.scaling);
}

}  // namespace

RotaryTable rotary_table(int64_t positions, const RotaryAngles& a, at::Device device) {
  if (a.rotary == 0) {
    Tensor none = at::zeros({positions, 0}, device);
    return {none, none};
  }
  Tensor exponent = at::arange(0, a.rotary, 2, at::kFloat) / static_cast<double>(a.rotary);
  Tensor frequency = frequency_of(at::pow(a.base, exponent), a);
  Tensor angle = at::outer(at::arange(positions, at::kFloat), frequency);
  double size = a.scaling.attention_factor;
  return {(angle.cos() * size).to(device), (angle.sin() * size).to(device)};
}

RotaryTable rows_at(const RotaryTable& table, const Tensor& positions) {
  Tensor at = positions.flatten();
  return {table.cos.index_select(0, at), table.sin.index_select(0, at)};
}

RotaryTable rows_from(const RotaryTable& table, int64_t first, int64_t T) {
  if (table.cos.size(1) == 0) return table;
  check(first + T <= table.cos.size(0), "positions ", first, "..", first + T, " are beyond the ",
        table.cos.size(0), " that the model has (max_position_embeddings)");
  return {table.cos.narrow(0, first, T), table.sin.narrow(0, first, T)};
}

Heads rotated_heads_(const Tensor& qkv, HeadGroups heads, const RotaryTable& rows,
                     const Tensor& bias) {
  tensor_list out =
      RotatedHeads::apply(qkv, std::optional<Tensor>(bias), heads, rows.cos, rows.sin);
  return {out[0], out[1], out[2]};
}

}  // namespace neox
