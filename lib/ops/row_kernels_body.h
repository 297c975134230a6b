// The functions of RowKernels over the vectors of one instruction set. The file that includes it
// defines, in an anonymous namespace, Floats and kLanes, load() of both types, sum(), sums() (that
// of kLanes vectors) and keep(), kRegisters, and kPlaces, of which rows of weights are read in turn
// (1: of those that follow each other). All is in that namespace too: compiled for another
// processor, a function with a name that the linker sees could end up in programs for this one. No
// <cmath>, no <algorithm> for the same reason.
#include "ops/row_multiply_body.h"

namespace neox {
namespace {

inline float root(float x) { return __builtin_sqrtf(x); }

void norm(const RowNorm& norm, const float* x, int64_t n, float* y) {
  Floats total{}, squares{};
  auto size = static_cast<float>(n);
  float mean = 0;
  if (!norm.rms) {
    for (int64_t k = 0; k < n; k += kLanes) total += load_some(x + k, n - k);
    mean = sum(total) / size;
  }
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    Floats d = load(x + k) - mean;
    squares += d * d;
  }
  float rest = 0;
  for (; k < n; ++k) rest += (x[k] - mean) * (x[k] - mean);
  float scale = 1 / root((sum(squares) + rest) / size + norm.eps);
  for (k = 0; k < n; k += kLanes) {
    Floats v = (load_some(x + k, n - k) - mean) * scale * load_some(norm.weight + k, n - k);
    if (norm.bias) v += load_some(norm.bias + k, n - k);
    store_some(y + k, v, n - k);
  }
}

// e^x within 2 units in the last place (the polynomial of Cephes' expf); at least 1e-38. NaN of
// NaN, which the order of operands keeps.
inline Floats exponential(Floats x) {
  x = smaller(all(88.3f), greater(all(-87.3f), x));
  Floats n = x * 1.44269504f + 12582912.0f;  // the nearest integer in the lowest bits
  Ints power = reinterpret_cast<Ints>(n) << 23;
  n -= 12582912.0f;
  Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
  Floats p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  Floats e = p * r * r + r + 1.0f;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(e) + power);
}

// The products of q, as OrderedRows has it, and one key.
template <class T>
inline __attribute__((always_inline)) Floats product(const float* q, const T* key, int64_t D) {
  constexpr int64_t P = kParts<T>, kWide = P * kLanes;
  Floats s{};
  auto add = [&](const T* from, int64_t d) {
    s += load_part<0>(from) * load(q + d);
    if constexpr (P == 2) s += load_part<1>(from) * load(q + d + kLanes);
  };
  int64_t d = 0;
  for (; d + kWide <= D; d += kWide) add(key + d, d);
  if (d == D) return s;
  T some[kWide] = {};
  for (int64_t i = 0; d + i < D; ++i) some[i] = key[d + i];
  add(some, d);
  return s;
}

inline void fetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const char*>(from) + i, 0, 2);
}

// scores[j] = q keys[j] * scale of n keys, before the values.
template <class T>
inline void score(const float* q, const T* keys, const T* values, int64_t D, int64_t n, float scale,
                  float* scores) {
  constexpr int64_t kSize = sizeof(T);
  const char *key = reinterpret_cast<const char*>(keys) + kDistance,
             *end = reinterpret_cast<const char*>(keys + n * D);
  int64_t to_values = reinterpret_cast<const char*>(values) - end, j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Floats s[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i, key += D * kSize) {
      fetch(key + (key < end ? 0 : to_values), D * kSize);
      s[i] = product(q, keys + (j + i) * D, D);
    }
    store(scores + j, sums(s) * scale);
  }
  for (; j < n; ++j) scores[j] = sum(product(q, keys + j * D, D)) * scale;
}

// 0 below e^-44, which beside e^0 changes no sum: products of less with values would be below
// 1e-38, which take processors ten times as long.
inline Floats weight_of(Floats below_top) {
  return below_top < -44.0f ? Floats{} : exponential(below_top);
}

// scores[j] becomes e^(score - the greatest); returns their sum. The scores are padded to vectors.
inline float exponentials(float* scores, int64_t n) {
  for (int64_t j = n; j % kLanes != 0; ++j) scores[j] = -3e38f;
  Floats most = all(-3e38f), total{};
  for (int64_t j = 0; j < n; j += kLanes) most = greater(most, load(scores + j));
  float top = most[0];
  for (int i = 1; i < kLanes; ++i) top = most[i] > top ? most[i] : top;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Floats e = weight_of(load(scores + j) - top);
    total += e;
    store(scores + j, e);
  }
  if (j == n) return sum(total);
  store(scores + j, weight_of(load(scores + j) - top));
  return sum(total + load_some(scores + j, n - j));
}

template <int N, class T>
inline void weighted_sum(const float* weights, const T* values, int64_t D, int64_t n, float scale,
                         float* out) {
  constexpr int64_t kSize = sizeof(T);
  Floats s[N] = {};
  auto add = [&](int64_t j) {
    for (int i = 0; i < N; ++i) s[i] += load(values + j * D + i * kLanes) * weights[j];
  };
  int64_t j = 0, asked = n - kDistance / (D * kSize);
  for (; j < asked; ++j) {
    fetch(reinterpret_cast<const char*>(values + j * D) + kDistance, N * kLanes * kSize);
    add(j);
  }
  for (; j < n; ++j) add(j);
  for (int i = 0; i < N; ++i) store(out + i * kLanes, s[i] * scale);
}

template <class T>
inline void attend_query(const CacheAttention& a, int64_t query) {
  OrderedRows<InParts<T>> q({const_cast<float*>(a.q) + query * a.q_stride, 1, 0}, a.D);
  const float* added = a.added ? a.added + query * a.added_stride + a.first : nullptr;
  int64_t n = a.last - a.first, D = a.D, d = 0;
  const T *keys = static_cast<const T*>(a.keys) + a.first * D,
          *values = static_cast<const T*>(a.values) + a.first * D;
  score(q.rows(0), keys, values, D, n, a.scale, a.scores);
  for (int64_t j = 0; added && j < n; ++j) a.scores[j] += added[j];
  if (a.next && query + 1 == a.queries) fetch(a.next, kDistance);
  float scale = 1 / exponentials(a.scores, n);
  float* out = a.out + query * D;
  for (; d + 4 * kLanes <= D; d += 4 * kLanes)
    weighted_sum<4>(a.scores, values + d, D, n, scale, out + d);
  for (; d + kLanes <= D; d += kLanes) weighted_sum<1>(a.scores, values + d, D, n, scale, out + d);
  if (d == D) return;
  Floats s{};
  for (int64_t j = 0; j < n; ++j) s += load_some(values + j * D + d, D - d) * a.scores[j];
  store_some(out + d, s * scale, D - d);
}

void attend(const CacheAttention& a) {
  for (int64_t query = 0; query < a.queries; ++query)
    if (a.type == WeightType::kFloat)
      attend_query<float>(a, query);
    else
      attend_query<uint16_t>(a, query);
}

void store_as(const float* x, int64_t n, WeightType type, void* to) {
  if (type == WeightType::kFloat) {
    std::memcpy(to, x, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  auto* half = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    uint32_t even = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // to the nearest, ties to even
    half[i] = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : even);
  }
}

void widen(const uint16_t* x, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kLanes) store_some(to + i, load_some(x + i, n - i), n - i);
}

void add(const float* x, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += x[i];
}

void rotate(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

template <class F>
inline void for_each(float* x, int64_t n, const F& f) {
  for (int64_t i = 0; i < n; i += kLanes) store_some(x + i, f(load_some(x + i, n - i)), n - i);
}

inline Floats logistic(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

// The complementary error function of |x| by Abramowitz and Stegun 7.1.26: within 1.5e-7.
void gelu_erf(float* x, int64_t n) {
  for_each(x, n, [](Floats v) {
    Floats z = greater(v, -v) * 0.707106781f, t = 1.0f / (1.0f + z * 0.3275911f);
    Floats p = all(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    Floats far = p * t * exponential(-z * z);
    return v * 0.5f * (v > 0 ? 2.0f - far : far);
  });
}
void gelu_tanh(float* x, int64_t n) {
  for_each(x, n,
           [](Floats v) { return v * logistic((v + v * v * v * 0.044715f) * 1.5957691216f); });
}
void relu(float* x, int64_t n) {
  for_each(x, n, [](Floats v) { return greater(Floats{}, v); });  // NaN of NaN
}
void silu(float* x, int64_t n) {
  for_each(x, n, [](Floats v) { return v * logistic(v); });
}
void softsign(float* x, int64_t n) {
  for_each(x, n, [](Floats v) { return v / (1.0f + greater(v, -v)); });
}
// x tanh(log(1 + e^x))
void mish(float* x, int64_t n) {
  for_each(x, n, [](Floats v) {
    Floats e = exponential(smaller(v, all(20.0f))), m = e * (e + 2.0f);
    return v * (m / (m + 2.0f));
  });
}
void sigmoid(float* x, int64_t n) {
  for_each(x, n, [](Floats v) { return logistic(v); });
}

constexpr RowKernels kernels_named(const char* name) {
  return {.name = name,
          .multiply = multiply,
          .norm = norm,
          .attend = attend,
          .store = store_as,
          .widen = widen,
          .add = add,
          .rotate = rotate,
          .gelu_erf = gelu_erf,
          .gelu_tanh = gelu_tanh,
          .relu = relu,
          .silu = silu,
          .softsign = softsign,
          .mish = mish,
          .sigmoid = sigmoid};
}

}  // namespace
}  // namespace neox
