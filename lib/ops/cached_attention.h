// Attention of one new token of each row over a key/value cache, for generation: the token's
// queries and key are rotated, its key and value join the cache, and its queries attend, in one
// kernel. The keys of a row are shared out over blocks, so that a single row fills a GPU.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/element.h"
#include "ops/rotary.h"

namespace neox {

struct CacheStep {
  at::Tensor keys, values;  // [B, K, capacity, D], contiguous; take the token at its row's length
  at::Tensor lengths;       // [B] int64: positions filled, which number the token; below `seen`
  int64_t seen;             // keys looked at; those behind a row's token are hidden
  double scale;             // of scores
  at::Tensor added = {};    // [B K, G, seen], added to scores; or undefined
  at::Tensor arrived = {};  // [B H] int32, zeros before and after; for a GPU only
};

// q [B, H, 1, D]; k, v [B, K, 1, D]: attended [B, H, D]. By ATen's operations; cache.added, [B K, G
// or 1, seen], must hide what lies behind a token.
at::Tensor attend_cached_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const CacheStep& cache);

// qkv [B, 1, K (G + 2) D], contiguous, as for rotated_heads_, whose contents are lost; the table's
// row of each position: attended [B, H D]. On a GPU D must be a multiple of 8 of up to 256
// (takes_cached_attention()) and keys and values begin at multiples of 16 bytes.
at::Tensor cached_attention_(const at::Tensor& qkv, HeadGroups heads, const RotaryTable& table,
                             const CacheStep& cache);

constexpr bool takes_cached_attention(int64_t D) { return D % 8 == 0 && D > 0 && D <= 256; }

// What the kernel takes; null where a tensor is missing. A block is of kCacheThreads threads, of
// which `lanes` share a key, 8 elements each; each thread takes part in kCacheSteps keys at once.
constexpr int64_t kCacheThreads = 256, kCacheSteps = 4;

struct CacheRows {
  Element type;
  int64_t B, groups, queries, D, capacity, seen, half;
  double scale;  // of scores
  const void* qkv;
  const float *cos, *sin;
  const int64_t* lengths;
  const void* added;
  void *keys, *values, *out;
  void* partial;  // [B, H, splits, D + 2] float, or double: sums, maximum, total of up to so many
  int32_t* arrived;

  int64_t lanes() const {  // a power of two
    int64_t n = 4;
    while (8 * n < D) n *= 2;
    return n;
  }
  int64_t keys_at_once() const { return kCacheThreads / lanes() * kCacheSteps; }
  int64_t splits() const { return (seen + keys_at_once() - 1) / keys_at_once(); }
};

// The CUDA half.
void cached_attention_cuda(const CacheRows& rows);

}  // namespace neox
