#include "ops/bf16_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "ops/bf16_product.h"
#include "ops/bf16_softmax.h"
#include "ops/head_parts.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Blocks of scores and what is made of them stay in the second-level cache of a core.
constexpr int64_t kQueries = 128, kKeys = 256;  // of the forward pass
constexpr int64_t kBackQueries = 128, kBackKeys = 128;
static_assert(kQueries == kPartStep && kBackQueries == kPartStep && kBackKeys == kPartStep);
constexpr double kForwardCost = 1.1;  // of heads in parts, whose keys are packed again
constexpr float kLog2e = 1.44269504F;

// Scores are exponents: their sums are in float.
const Bf16Kernels& attending() { return bf16_kernels()->of_attention(); }

// Sixty-four bytes apart, from one allocation per thread.
class Room {
 public:
  explicit Room(int64_t words) : room_(room_for_pairs(words)), next_(pairs_in(room_)) {}
  uint32_t* words(int64_t n) {
    uint32_t* here = next_;
    next_ += padded_to(n, 16);
    return here;
  }
  float* floats(int64_t n) { return reinterpret_cast<float*>(words(n)); }
  uint16_t* halves(int64_t n) { return reinterpret_cast<uint16_t*>(words((n + 1) / 2)); }

 private:
  Tensor room_;
  uint32_t* next_;
};

// The same numbers with the other dimension as depth.
Bf16Matrix transposed(const Bf16Matrix& m) {
  return {m.data, m.depth, m.rows, m.depth_stride, m.row_stride};
}

int64_t columns_size(int64_t rows, int64_t depth) {
  return padded_to(rows, kTileColumns) * pairs_of(depth);
}
int64_t rows_size(int64_t rows, int64_t depth) {
  return padded_to(rows, attending().tile_rows) * attending().row_words(pairs_of(depth));
}
PackedColumns columns_of(const uint32_t* packed, int64_t depth) {
  return {packed, pairs_of(depth) * kTileColumns};
}
PackedRows rows_of(const uint32_t* packed, int64_t depth) {
  return {packed, attending().row_words(pairs_of(depth)) * attending().tile_rows};
}
// Pairs [pairs][wide].
PackedColumns columns_among(const uint32_t* pairs, int64_t wide) {
  return {pairs, kTileColumns, wide};
}

const Bf16Softmax& softmax() { return *attending().softmax; }

struct Scales {
  float score, log2;  // what they are multiplied by, and in units of log 2
  explicit Scales(float scale) : score(scale), log2(scale * kLog2e) {}
};

// One head of one sample, [T, D] each.
struct HeadInput {
  Bf16Matrix q, k, v;
  HeadRule rule;
};

// --- forward ---

// Products have queries as columns: scores [keys, queries], and out [D, queries].
struct ForwardRoom {
  Room room;
  uint32_t *k, *v, *q, *pairs;
  float *scores, *out, *top, *sum, *rescale;
  ForwardRoom(int64_t T, int64_t D)
      : room((T / kKeys + 1) * (rows_size(kKeys, D) + rows_size(D, kKeys)) +
             columns_size(kQueries, D) + kQueries * (kKeys / 2 + kKeys + D + 3) + 512),
        k(room.words((T / kKeys + 1) * rows_size(kKeys, D))),
        v(room.words((T / kKeys + 1) * rows_size(D, kKeys))),
        q(room.words(columns_size(kQueries, D))),
        pairs(room.words(kQueries * kKeys / 2)),
        scores(room.floats(kQueries * kKeys)),
        out(room.floats(kQueries * D)),
        top(room.floats(kQueries)),
        sum(room.floats(kQueries)),
        rescale(room.floats(kQueries)) {}
};

// Of some queries, whatever others do: from a multiple of kQueries on.
class HeadForward {
 public:
  HeadForward(const HeadInput& head, Range queries, ForwardRoom& room)
      : head_(head),
        queries_(queries),
        room_(room),
        T_(head.q.rows),
        D_(head.q.depth),
        scales_(head.rule.scale()) {
    for (int64_t key = first_key(queries.from); key < queries.end; key += kKeys) {
      int64_t n = std::min(kKeys, T_ - key);
      attending().pack_rows(head.k.narrow(key, n), keys_from(key));
      attending().pack_rows(transposed(head.v.narrow(key, n)), values_of(key));
    }
  }
  // out [T, D], rows `stride` apart; log_sum [T], of log 2.
  void run(uint16_t* out, int64_t stride, float* log_sum) {
    for (int64_t query = queries_.from; query < queries_.end; query += kQueries) {
      int64_t n = std::min(kQueries, T_ - query);
      attend(query, n);
      for (int64_t i = 0; i < n; ++i) {
        log_sum[query + i] = room_.top[i] + std::log2(room_.sum[i]);
        room_.rescale[i] = 1 / room_.sum[i];
      }
      softmax().store_columns(outputs(n), room_.rescale, out + query * stride, stride);
    }
  }

 private:
  uint32_t* keys_from(int64_t key) const { return room_.k + key / kKeys * rows_size(kKeys, D_); }
  uint32_t* values_of(int64_t key) const { return room_.v + key / kKeys * rows_size(D_, kKeys); }
  FloatColumns outputs(int64_t n) const { return {room_.out, kQueries, D_, n}; }
  // Of the first block of keys that a query sees any of.
  int64_t first_key(int64_t query) const { return head_.rule.first_key(query) / kKeys * kKeys; }

  void attend(int64_t query, int64_t n) {
    attending().pack_columns(head_.q.narrow(query, n), room_.q);
    std::fill_n(room_.top, kQueries, kNoScore);
    std::fill_n(room_.sum, kQueries, 0.0F);
    for (int64_t key = first_key(query); key < query + n; key += kKeys)
      add_keys(query, n, key, std::min(kKeys, query + n - key));
  }

  void add_keys(int64_t query, int64_t n, int64_t key, int64_t keys) {
    int64_t wide = padded_to(n, kTileColumns), packed = std::min(kKeys, T_ - key);
    attending().multiply_packed(rows_of(keys_from(key), D_), columns_of(room_.q, D_), pairs_of(D_),
                                {.data = room_.scores, .stride = wide}, keys, n);
    head_.rule.count_distances({room_.scores, keys, n, wide, query, key, true});
    bool first = key == first_key(query);
    softmax().keys({room_.scores, keys, wide, key, query, scales_.log2},
                   {room_.top, room_.sum, room_.rescale}, room_.pairs);
    if (!first) softmax().scale_columns(outputs(n), room_.rescale);
    attending().multiply_packed(rows_of(values_of(key), packed), columns_among(room_.pairs, wide),
                                pairs_of(keys),
                                {.data = room_.out, .stride = kQueries, .add = !first}, D_, n);
  }

  HeadInput head_;
  Range queries_;
  ForwardRoom& room_;
  int64_t T_, D_;
  Scales scales_;
};

// --- backward ---

// Products have keys as columns: scores and their gradients [queries, keys], dk and dv [D, keys];
// but dq [queries, D].
struct BackwardRoom {
  Room room;
  uint32_t *q, *dy, *q_t, *dy_t, *k, *v, *k_t, *p, *ds, *ds_rows_packed;
  uint16_t* ds_rows;
  float *scores, *dp, *dq, *dk, *dv, *dot;
  BackwardRoom(int64_t T, int64_t D)
      : room(2 * blocks(T) * (rows_size(kBackQueries, D) + rows_size(D, kBackQueries)) +
             2 * columns_size(kBackKeys, D) + columns_size(D, kBackKeys) +
             rows_size(kBackQueries, kBackKeys) + 4 * kBackQueries * kBackKeys + T * D +
             2 * kBackKeys * D + T + 512),
        q(room.words(blocks(T) * rows_size(kBackQueries, D))),
        dy(room.words(blocks(T) * rows_size(kBackQueries, D))),
        q_t(room.words(blocks(T) * rows_size(D, kBackQueries))),
        dy_t(room.words(blocks(T) * rows_size(D, kBackQueries))),
        k(room.words(columns_size(kBackKeys, D))),
        v(room.words(columns_size(kBackKeys, D))),
        k_t(room.words(columns_size(D, kBackKeys))),
        p(room.words(kBackQueries * kBackKeys / 2)),
        ds(room.words(kBackQueries * kBackKeys / 2)),
        ds_rows_packed(room.words(rows_size(kBackQueries, kBackKeys))),
        ds_rows(room.halves(kBackQueries * kBackKeys)),
        scores(room.floats(kBackQueries * kBackKeys)),
        dp(room.floats(kBackQueries * kBackKeys)),
        dq(room.floats(T * D)),
        dk(room.floats(kBackKeys * D)),
        dv(room.floats(kBackKeys * D)),
        dot(room.floats(T)) {}
  static int64_t blocks(int64_t T) { return (T + kBackQueries - 1) / kBackQueries; }
};

struct HeadOutput {
  Bf16Matrix out, dout;
  const float* log_sum;
};
struct Bf16Gradients {
  uint16_t *dq, *dk, *dv;
  int64_t stride;
};

// The gradients of some queries and of some keys, whatever others do; either may be {0, 0}. Both
// begin at multiples of kBackQueries, which is kBackKeys.
class HeadBackward {
 public:
  HeadBackward(const HeadInput& head, const HeadOutput& y, Range queries, Range keys,
               BackwardRoom& room)
      : head_(head),
        y_(y),
        queries_(queries),
        keys_(keys),
        r_(room),
        T_(head.q.rows),
        D_(head.q.depth),
        scales_(head.rule.scale()) {
    Range seen = of_interest();
    for (int64_t i = seen.from; i < seen.end; i += kBackQueries) {
      int64_t n = std::min(kBackQueries, T_ - i);
      Bf16Matrix q = head.q.narrow(i, n), dy = y.dout.narrow(i, n);
      attending().pack_rows(q, block(r_.q, i));
      attending().pack_rows(dy, block(r_.dy, i));
      if (keys.empty() || i < keys.from) continue;
      attending().pack_rows(transposed(q), block_transposed(r_.q_t, i));
      attending().pack_rows(transposed(dy), block_transposed(r_.dy_t, i));
    }
    for (int64_t i = seen.from; i < seen.end; ++i)
      r_.dot[i] =
          softmax().dot(y.out.data + i * y.out.row_stride, y.dout.data + i * y.dout.row_stride, D_);
  }
  void run(const Bf16Gradients& to) {
    int64_t n = queries_.end - queries_.from;
    std::fill_n(r_.dq + queries_.from * D_, n * D_, 0.0F);
    for (int64_t key = 0; key < T_; key += kBackKeys)
      if (keys_.has(key) || (key < queries_.end && queries_.from < last_query(key)))
        add_key_block(key, std::min(kBackKeys, T_ - key), to);
    softmax().store_rows(r_.dq + queries_.from * D_, n, D_, to.dq + queries_.from * to.stride,
                         to.stride);
  }

 private:
  // The queries that see the keys, in whole blocks, and the others.
  Range of_interest() const {
    if (keys_.empty()) return queries_;
    int64_t end = std::min(T_, padded_to(last_query(keys_.end - kBackKeys), kBackQueries));
    if (queries_.empty()) return {keys_.from, end};
    return {std::min(queries_.from, keys_.from), std::max(queries_.end, end)};
  }
  // The end of the queries that see any of a block of keys.
  int64_t last_query(int64_t key) const {
    return std::min(T_, head_.rule.last_query(key + kBackKeys - 1) + 1);
  }
  uint32_t* block(uint32_t* all, int64_t query) const {
    return all + query / kBackQueries * rows_size(kBackQueries, D_);
  }
  uint32_t* block_transposed(uint32_t* all, int64_t query) const {
    return all + query / kBackQueries * rows_size(D_, kBackQueries);
  }

  void add_key_block(int64_t key, int64_t keys, const Bf16Gradients& to) {
    pack_keys(key, keys);
    for (int64_t query = key; query < last_query(key); query += kBackQueries)
      if (keys_.has(key) || queries_.has(query))
        add_block(query, std::min(kBackQueries, T_ - query), key, keys);
    if (!keys_.has(key)) return;
    softmax().store_columns({r_.dk, kBackKeys, D_, keys}, nullptr, to.dk + key * to.stride,
                            to.stride);
    softmax().store_columns({r_.dv, kBackKeys, D_, keys}, nullptr, to.dv + key * to.stride,
                            to.stride);
  }

  void pack_keys(int64_t key, int64_t keys) {
    attending().pack_columns(head_.k.narrow(key, keys), r_.k);
    attending().pack_columns(head_.v.narrow(key, keys), r_.v);
    attending().pack_columns(transposed(head_.k.narrow(key, keys)), r_.k_t);
    std::fill_n(r_.dk, kBackKeys * D_, 0.0F);
    std::fill_n(r_.dv, kBackKeys * D_, 0.0F);
  }

  void add_block(int64_t query, int64_t n, int64_t key, int64_t keys) {
    int64_t pairs = pairs_of(D_), wide = padded_to(keys, kTileColumns);
    auto rows = [&](uint32_t* all) { return rows_of(block(all, query), D_); };
    attending().multiply_packed(rows(r_.q), columns_of(r_.k, D_), pairs,
                                {.data = r_.scores, .stride = wide}, n, keys);
    head_.rule.count_distances({r_.scores, n, keys, wide, query, key});
    attending().multiply_packed(rows(r_.dy), columns_of(r_.v, D_), pairs,
                                {.data = r_.dp, .stride = wide}, n, keys);
    softmax().backward_queries({r_.scores, r_.dp, n, wide, query, key, scales_.score, scales_.log2,
                                y_.log_sum + query, r_.dot + query},
                               {r_.p, r_.ds, r_.ds_rows});
    auto add_to = [&](float* gradient, uint32_t* factors, const uint32_t* among) {
      attending().multiply_packed(rows_of(block_transposed(factors, query), n),
                                  columns_among(among, wide), pairs_of(n),
                                  {.data = gradient, .stride = kBackKeys, .add = true}, D_, keys);
    };
    if (keys_.has(key)) {
      add_to(r_.dv, r_.dy_t, r_.p);
      add_to(r_.dk, r_.q_t, r_.ds);
    }
    if (!queries_.has(query)) return;
    attending().pack_rows({r_.ds_rows, n, keys, wide, 1}, r_.ds_rows_packed);
    attending().multiply_packed(rows_of(r_.ds_rows_packed, keys), columns_of(r_.k_t, keys),
                                pairs_of(keys),
                                {.data = r_.dq + query * D_, .stride = D_, .add = true}, n, D_);
  }

  HeadInput head_;
  HeadOutput y_;
  Range queries_, keys_;
  BackwardRoom& r_;
  int64_t T_, D_;
  Scales scales_;
};

// --- of tensors ---

Bf16Matrix head_of(const Tensor& x, int64_t b, int64_t h) {
  return {static_cast<const uint16_t*>(x.const_data_ptr()) + b * x.stride(0) + h * x.stride(1),
          x.size(2), x.size(3), x.stride(2), x.stride(3)};
}
uint16_t* writable(const Bf16Matrix& m) { return const_cast<uint16_t*>(m.data); }

class Attention : public torch::autograd::Function<Attention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const ScoreRule& rule) {
    RECORD_FUNCTION("neox::attention", std::vector<c10::IValue>({q, k, v}));
    Tensor out = heads_inside(q),
           log_sum = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    each_query_task<ForwardRoom>(
        q, kForwardCost, [&](int64_t b, int64_t h, Range queries, ForwardRoom& room) {
          Bf16Matrix to = head_of(out, b, h);
          HeadForward({head_of(q, b, h), head_of(k, b, h), head_of(v, b, h), HeadRule(rule, h)},
                      queries, room)
              .run(writable(to), to.row_stride, log_sum[b][h].mutable_data_ptr<float>());
        });
    context->save_for_backward({q, k, v, out, log_sum});
    context->saved_data["rule"] = kept(rule);
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto s = context->get_saved_variables();
    const Tensor &q = s[0], &k = s[1], &v = s[2], &out = s[3], &log_sum = s[4];
    Tensor dout = grad[0].stride(3) == 1 ? grad[0] : grad[0].contiguous();
    Tensor dq = heads_inside(q), dk = heads_inside(k), dv = heads_inside(v);
    ScoreRule rule = kept_rule(context->saved_data["rule"]);
    each_gradient_task<BackwardRoom>(q, [&](int64_t b, int64_t h, Range queries, Range keys,
                                            BackwardRoom& room) {
      auto of = [&](const Tensor& x) { return head_of(x, b, h); };
      HeadBackward({of(q), of(k), of(v), HeadRule(rule, h)},
                   {of(out), of(dout), log_sum[b][h].const_data_ptr<float>()}, queries, keys, room)
          .run({writable(of(dq)), writable(of(dk)), writable(of(dv)), dq.stride(2)});
    });
    return {dq, dk, dv, {}};
  }
};

Tensor with_rows(const Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

}  // namespace

Tensor heads_inside(const Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options())
      .transpose(1, 2);
}

Tensor bf16_causal_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const ScoreRule& rule) {
  return Attention::apply(with_rows(q), with_rows(k), with_rows(v), rule);
}

}  // namespace neox
