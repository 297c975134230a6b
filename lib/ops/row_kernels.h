// Arithmetic of decoding on a CPU: matrices of weights times a few rows of activations, and what a
// decoder does between such products. Weights are float or bf16 as they lie in the model, all else
// is float; with dot products of bf16 (AVX512-BF16, AMX) the activations are rounded to bf16 where
// they are multiplied with weights of bf16, and the sums are float. A matrix is read once for all
// rows, at the rate of the memory; what a row gives does not depend on the other rows, bit for bit.
// Functions work on what they are given, in the calling thread; threads share the work by rows of
// the weights and by heads.
#pragma once
#include <cstdint>
#include <vector>

namespace neox {

enum class WeightType { kFloat, kBfloat16 };

// Activations start at 64 bytes and are as long, padded with zeros, as this multiple of floats.
constexpr int64_t kRowMultiple = 16;
inline int64_t padded_row(int64_t n) {
  return (n + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

// A weight whose exponent has no code.
struct RareWeight {
  uint32_t tile;          // of the group
  uint16_t place, value;  // among the tile's numbers
};

// A matrix of bf16 in 12 bits a number, exactly (ops/packed_weights.h): groups of 16 rows, each its
// rare weights, by tiles, and behind them codes. The numbers of a group are in the order in which
// the kernels multiply them, in tiles of theirs; of each 128 there are 64 bytes with the codes of
// two exponents each, and 128 with signs and mantissas.
struct PackedWeights {
  struct Place {
    uint32_t rare, codes;  // in units of 64 bytes
  };
  const uint8_t* data = nullptr;
  const Place* places = nullptr;        // of each group
  uint8_t high[16] = {}, low[16] = {};  // of a code: the exponent's upper bits, and its last one

  // What ends them has the largest tile.
  const RareWeight* rare(int64_t group) const {
    return reinterpret_cast<const RareWeight*>(data + int64_t{64} * places[group].rare);
  }
  const uint8_t* codes(int64_t group) const { return data + int64_t{64} * places[group].codes; }
};
constexpr int64_t kPackedRows = 16;

// A group of rows that is packed.
struct PackedGroup {
  const uint16_t* rows = nullptr;  // `columns` apart
  int64_t columns = 0;
  const uint8_t* code_of = nullptr;  // of each of 256 exponents; 255: none
  uint8_t* codes = nullptr;
  RareWeight* rare = nullptr;  // room for all, and what ends them
};

struct WeightMatrix {
  const void* data = nullptr;  // [rows, columns]
  WeightType type = WeightType::kFloat;
  int64_t rows = 0, columns = 0;
  const PackedWeights* packed = nullptr;  // the same weights, or null
};

// Rows of floats, `stride` apart.
struct FloatRows {
  float* data = nullptr;
  int64_t count = 0, stride = 0;
};

struct RowNorm {
  const float *weight = nullptr, *bias = nullptr;  // bias may be null
  float eps = 0;
  bool rms = false;
};

// Queries of one row that see the same keys and values.
struct CacheAttention {
  const float* q = nullptr;  // [queries, D], `q_stride` apart
  int64_t queries = 0, q_stride = 0, D = 0;
  float scale = 1;                                // of scores
  const void *keys = nullptr, *values = nullptr;  // [positions, D]
  WeightType type = WeightType::kFloat;
  int64_t first = 0, last = 0;   // the positions that are seen
  const float* added = nullptr;  // to the scores of each query, [queries, positions]; or null
  int64_t added_stride = 0;
  const void* next = nullptr;  // keys that another one sees next; or null
  float* scores = nullptr;     // scratch: padded_row(last)
  float* out = nullptr;        // [queries, D]
};

using Pointwise = void (*)(float* x, int64_t n);  // in place

struct RowKernels {
  const char* name;
  // y[r][n] = sum over k of x[r][k] w[n][k] for n in [from, to) and all rows of x.
  void (*multiply)(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                   const FloatRows& y);
  void (*norm)(const RowNorm& norm, const float* x, int64_t n, float* y);
  // softmax(scale q k^T + added) v
  void (*attend)(const CacheAttention& a);
  void (*store)(const float* x, int64_t n, WeightType type, void* to);
  void (*widen)(const uint16_t* x, int64_t n, float* to);  // from bf16
  void (*add)(const float* x, int64_t n, float* to);       // to += x
  // In GPT-NeoX's half-split form, on the first 2 * half elements.
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t half);
  Pointwise gelu_erf, gelu_tanh, relu, silu, softsign, mish, sigmoid;
  // For multiply(), matrices of a multiple of so many columns can be packed; 0: none.
  int64_t packed_columns = 0;
  // How many of n numbers have no code; n is a multiple of 128.
  int64_t (*count_rare)(const uint16_t* numbers, int64_t n, const uint8_t* code_of) = nullptr;
  void (*pack)(const PackedGroup& group) = nullptr;
};

// Those that this processor runs, the fastest last.
std::vector<const RowKernels*> all_row_kernels();
// The fastest.
const RowKernels& row_kernels();

// Those of one instruction set.
extern const RowKernels kPlainRowKernels, kAvx2RowKernels, kAvx512RowKernels, kAvx512Bf16RowKernels;

}  // namespace neox
