#include "ops/cached_attention.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "base/error.h"

namespace neox {
namespace {

using at::Tensor;

// [B K, G or 1, seen], with -inf behind a row's token.
Tensor scores_added(const CacheStep& cache) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  int64_t B = cache.keys.size(0), K = cache.keys.size(1), seen = cache.seen;
  Tensor ahead =
      at::arange(seen, cache.lengths.options()) > cache.lengths.unsqueeze(1);  // [B, seen]
  Tensor hidden = ahead.unsqueeze(1).expand({B, K, seen}).reshape({B * K, 1, seen});
  Tensor added =
      cache.added.defined() ? cache.added : at::zeros(hidden.sizes(), cache.keys.options());
  return added.masked_fill(hidden, kHidden);
}

void check_cache(const Tensor& qkv, HeadGroups heads, const CacheStep& cache) {
  int64_t B = qkv.size(0), D = cache.keys.size(3), K = heads.groups, G = heads.queries;
  check(qkv.is_contiguous() && qkv.numel() == B * K * (G + 2) * D, "a step's heads are ",
        qkv.sizes(), ": not contiguous, or not ", K, " x (", G, " + 2) x ", D, " for each row");
  for (const Tensor& x : {cache.keys, cache.values})
    check(x.is_contiguous() && x.size(0) == B && x.size(1) == K && x.size(3) == D &&
              x.scalar_type() == qkv.scalar_type() && cache.seen <= x.size(2),
          "a cache ", x.sizes(), " for ", B, " rows of ", K, " groups, of which ", cache.seen,
          " positions are looked at");
  check(cache.lengths.numel() == B, "lengths ", cache.lengths.sizes(), " of ", B, " rows");
  check(!cache.added.defined() || cache.added.numel() == B * K * G * cache.seen, "added scores ",
        cache.added.defined() ? cache.added.numel() : 0, " of ", B * K * G, " x ", cache.seen);
}

Tensor on_gpu(const Tensor& qkv, HeadGroups heads, const RotaryTable& table,
              const CacheStep& cache) {
  int64_t B = qkv.size(0), D = cache.keys.size(3), H = heads.groups * heads.queries;
  check(takes_cached_attention(D), "heads of ", D, " elements: expected a multiple of 8 up to 256");
  check(cache.arrived.defined() && cache.arrived.numel() >= B * H, "no counters for ", B * H,
        " heads");
  for (const Tensor& x : {cache.keys, cache.values})
    check(takes_wide_loads(x.const_data_ptr()), "a cache ", x.sizes(),
          " does not begin at a multiple of 16 bytes");
  Tensor added = cache.added;
  if (added.defined()) {
    check(added.scalar_type() == qkv.scalar_type(), "added scores of ", added.scalar_type(),
          " for heads of ", qkv.scalar_type());
    added = added.contiguous();
  }
  Tensor out = at::empty({B, H * D}, qkv.options());
  CacheRows r{.type = element_of("attention to a cache", qkv.scalar_type()),
              .B = B,
              .groups = heads.groups,
              .queries = heads.queries,
              .D = D,
              .capacity = cache.keys.size(2),
              .seen = cache.seen,
              .half = table.cos.size(1),
              .scale = cache.scale,
              .qkv = qkv.const_data_ptr(),
              .cos = table.cos.const_data_ptr<float>(),
              .sin = table.sin.const_data_ptr<float>(),
              .lengths = cache.lengths.const_data_ptr<int64_t>(),
              .added = added.defined() ? added.const_data_ptr() : nullptr,
              .keys = cache.keys.mutable_data_ptr(),
              .values = cache.values.mutable_data_ptr(),
              .out = out.mutable_data_ptr(),
              .arrived = cache.arrived.mutable_data_ptr<int32_t>()};
  Tensor partial = at::empty({B, H, r.splits(), D + 2},
                             qkv.options().dtype(at::toOpMathType(qkv.scalar_type())));
  r.partial = partial.mutable_data_ptr();
  cached_attention_cuda(r);
  return out;
}

}  // namespace

Tensor attend_cached_step(const Tensor& q, const Tensor& k, const Tensor& v,
                          const CacheStep& cache) {
  int64_t B = k.size(0), K = k.size(1), D = k.size(3);
  Tensor place = cache.lengths.view({B, 1, 1, 1}).expand({B, K, 1, D});
  auto seen = [&](Tensor all, const Tensor& x) {  // [B K, seen, D]
    return all.scatter_(2, place, x).narrow(2, 0, cache.seen).flatten(0, 1);
  };
  Tensor keys = seen(cache.keys, k), values = seen(cache.values, v);
  Tensor scores =
      at::baddbmm(cache.added, q.reshape({B * K, -1, D}), keys.transpose(1, 2), 1, cache.scale);
  return at::matmul(scores.softmax(-1), values).view({B, -1, D});
}

Tensor cached_attention_(const Tensor& qkv, HeadGroups heads, const RotaryTable& table,
                         const CacheStep& cache) {
  check_cache(qkv, heads, cache);
  if (qkv.is_cuda()) return on_gpu(qkv, heads, table, cache);
  auto [q, k, v] = rotated_heads_(qkv, heads, rows_at(table, cache.lengths));
  CacheStep hiding = cache;
  hiding.added = scores_added(cache);
  return attend_cached_step(q, k, v, hiding).flatten(1);
}

}  // namespace neox
