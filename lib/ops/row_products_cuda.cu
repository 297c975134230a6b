// Products of one or two rows, and of types that tensor cores do not multiply exactly; more rows
// are those of row_tiles.cuh. A warp takes kRows rows of the weights, or a slice of their columns
// where there are few rows, so that all loads of a small matrix are under way at once; the warps of
// a block that share rows add up in order. The first weights are loaded before a block waits for
// the kernel that makes x, and of one row an early term is multiplied before (of eight, that was
// slower on an H200); a norm is computed by each block for itself.
#include "ops/row_tiles.cuh"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kWarps = kThreads / 32, kRows = 4;
// Of a small matrix's: with two steps of kRows x 16 bytes for each lane, 8 MB are under way.
constexpr int64_t kWantedWarps = 2048;

struct Job {
  ProductRows rows;
  int slices;  // warps that share rows
  unsigned blocks_each[2];
};

// Of a multiprocessor's.
template <class T, int kB>
constexpr int kBlocks = sizeof(T) > 2 ? 1
                        : kB == 1     ? 4
                                      : 3;

// What this thread works on.
template <class T>
struct Place {
  const ProductRows::Sum& sum;
  int slices, warp, lane, block_row, first_row;

  __device__ Place(const Job& job, bool second)
      : sum(job.rows.sums[second ? 1 : 0]),
        slices(job.slices),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32) {
    unsigned block = blockIdx.x - (second ? job.blocks_each[0] : 0);
    block_row = static_cast<int>(block) * rows_of_block();
    first_row = block_row + warp / slices * kRows;
  }
  __device__ int rows_of_block() const { return kWarps / slices * kRows; }
  __device__ int first_column() const { return (warp % slices * 32 + lane) * kPack<T>; }
  __device__ int width() const { return slices * 32 * kPack<T>; }  // of a step
};

// Goes in steps over the columns of one term after the other, in the rows of weights or of x.
template <class T>
struct Walk {
  const T* at;                       // the first row, at this lane's column
  int term = 0, start = 0, columns;  // the first of the step, and all of the term

  __device__ Walk(const Place<T>& p, const T* rows)
      : at(rows + p.first_column()), columns(static_cast<int>(p.sum.terms[0].columns)) {}
  __device__ bool ended() const { return start >= columns; }
  __device__ bool has(const Place<T>& p) const { return start + p.first_column() < columns; }
  template <class RowsOf>
  __device__ void advance(const Place<T>& p, const RowsOf& rows_of) {
    start += p.width();
    at += p.width();
    if (!ended() || term + 1 >= p.sum.num_terms) return;
    const ProductRows::Term& next = p.sum.terms[++term];
    start = 0;
    columns = static_cast<int>(next.columns);
    at = rows_of(next) + p.first_column();
  }
};

template <class T>
__device__ void load_weights(const Place<T>& p, Walk<T>& walk, Words<T> (&w)[kRows]) {
  auto rows_of = [&p](const ProductRows::Term& term) {
    return static_cast<const T*>(term.weight) + p.first_row * term.columns;
  };
  int more = static_cast<int>(p.sum.rows) - p.first_row - 1;  // rows behind the first one
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (walk.has(p))  // else nothing looks at them
      w[r] = load_words_once<T>(walk.at + int64_t{r < more ? r : more} * walk.columns);
  walk.advance(p, rows_of);
}

// sums += the weights' rows times those of x, of which there are B, at this step.
template <class T, int kB, bool kEarly>
__device__ void add_products(const Walk<T>& x, int B, const Words<T> (&w)[kRows],
                             Wide<T> (&sums)[kRows * kB]) {
  using W = Wide<T>;
  Words<T> rows[kB];
#pragma unroll
  for (int b = 0; b < kB; ++b) {
    const T* from = x.at + int64_t{b < B ? b : B - 1} * x.columns;
    rows[b] = kEarly ? load_words_fresh(from) : load_words<T>(from);
  }
#pragma unroll
  for (int j = 0; j < kPack<T>; ++j) {
    W weights[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) weights[r] = w[r][j];
#pragma unroll
    for (int b = 0; b < kB; ++b) {
      W value = rows[b][j];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r * kB + b] += weights[r] * value;
    }
  }
}

// The sum over kEach warps that stand side by side, for all of them.
template <int kEach, class W>
__device__ W over_warps(W x) {
  __shared__ W parts[kWarps];
  int warp = static_cast<int>(threadIdx.x) / 32, first = warp / kEach * kEach;
  x = over_warp(x, Add());
  __syncthreads();  // parts may be in use by the call before
  if (threadIdx.x % 32 == 0) parts[warp] = x;
  __syncthreads();
  W all = 0;
  for (int i = 0; i < kEach; ++i) all += parts[first + i];
  return all;
}

// normed [B, columns] = the term's rows, each by kWarps / kB warps. Behind them: copy_norm().
template <class T, int kB>
__device__ void norm_rows(const ProductRows::Term& term, const ProductRows& r, T* normed) {
  using W = Wide<T>;
  constexpr int kEach = kWarps / kB, kStep = kEach * 32 * kPack<T>;
  int b = static_cast<int>(threadIdx.x) / 32 / kEach;
  int first = static_cast<int>(threadIdx.x) % (kEach * 32) * kPack<T>,
      end = b < r.B ? static_cast<int>(term.columns) : 0;
  const T* x = static_cast<const T*>(term.x) + b * term.columns;
  auto mean_of = [&](auto value_of) {  // of value_of(x)
    W sum = 0;
#pragma unroll 1  // registers are taken by weights
    for (int i = first; i < end; i += kStep) {
      Words<T> pack = load_words<T>(x + i);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) sum += value_of(pack[j]);
    }
    return over_warps<kEach>(sum) / static_cast<W>(term.columns);
  };
  W mean = 0;
  if (r.options.kind == Norm::kLayerNorm) mean = mean_of([](W v) { return v; });
  W square = mean_of([mean](W v) { return (v - mean) * (v - mean); });
  W scale = 1 / sqrt(square + static_cast<W>(r.options.eps));
#pragma unroll 1
  for (int i = first; i < end; i += kStep) {
    const T* weights = normed + r.B * term.columns + i;
    Words<T> pack = load_words<T>(x + i), weight = load_words<T>(weights),
             bias = load_words<T>(weights + term.columns);
    Pack<T, kPack<T>> y;
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j)
      y.at[j] = static_cast<T>((pack[j] - mean) * scale * weight[j] + bias[j]);
    put_pack(normed + b * term.columns + i, y);
  }
  __syncthreads();
}

// The value of this thread's element of the result: `value` and then the sums over all columns, of
// which each thread has some.
template <class T, int kB>
__device__ Wide<T> with_columns(Wide<T> value, const Place<T>& p, const Result<T>& result,
                                const Wide<T> (&sums)[kRows * kB]) {
  __shared__ Wide<T> parts[kWarps][kRows * kB];
  Wide<T> sum = sums_over_warp(sums);
  constexpr int kLanes = 32 / (kRows * kB);
  if (p.lane % kLanes == 0) parts[p.warp][p.lane / kLanes] = sum;
  __syncthreads();
  for (int i = 0; i < p.slices && result.exists; ++i)
    value += parts[result.row / kRows * p.slices + i][result.row % kRows * kB + result.b];
  return value;
}

template <class T, int kB>
__global__ void __launch_bounds__(kThreads, kBlocks<T, kB>)
    product_kernel(const __grid_constant__ Job job) {
  using W = Wide<T>;
  extern __shared__ uint4 memory[];
  T* normed = reinterpret_cast<T*>(memory);
  Place<T> p(job, blockIdx.x >= job.blocks_each[0]);
  Result<T> result(p.sum, p.rows_of_block(), p.block_row, job.rows.B,
                   static_cast<int>(threadIdx.x));
  next_kernel_may_begin();
  const ProductRows::Term& term = p.sum.terms[0];
  Walk<T> weights(p, static_cast<const T*>(term.weight) + p.first_row * term.columns);
  Words<T> now[kRows], next[kRows];
  load_weights(p, weights, now);
  load_weights(p, weights, next);
  if (term.norm_weight) copy_norm<T>(term, normed + job.rows.B * term.columns, kThreads);
  W rest = result.bias(p.sum), sums[kRows * kB] = {};
  Walk<T> x(p, term.norm_weight ? normed : static_cast<const T*>(term.x));
  auto rows_of = [](const ProductRows::Term& t) { return static_cast<const T*>(t.x); };
  auto step = [&](auto early) {
    if (x.has(p)) add_products<T, kB, early>(x, static_cast<int>(job.rows.B), now, sums);
#pragma unroll
    for (int r = 0; r < kRows; ++r) now[r] = next[r];
    load_weights(p, weights, next);
    x.advance(p, rows_of);
  };
  if constexpr (kB == 1)
    while (x.term < p.sum.num_early && !x.ended()) step(std::true_type());
  wait_for_kernel_before();
  rest += result.residual(p.sum);
  if (term.norm_weight) norm_rows<T, kB>(term, job.rows, normed);
#pragma unroll 2
  while (!x.ended()) step(std::false_type());
  result.store(p.sum, with_columns<T, kB>(rest, p, result, sums));
}

template <class T>
Job job_of(const ProductRows& r) {
  Job job{.rows = r, .slices = 1, .blocks_each = {}};
  int64_t groups = 0, columns = 0;
  for (int i = 0; i < r.num_sums; ++i) {
    groups += (r.sums[i].rows + kRows - 1) / kRows;
    for (const ProductRows::Term& t : r.sums[i].terms) columns = std::max(columns, t.columns);
  }
  while (job.slices < kWarps && groups * job.slices < kWantedWarps &&
         columns > 32 * job.slices * kPack<T>)
    job.slices *= 2;
  int64_t rows = kWarps / job.slices * kRows;
  for (int i = 0; i < r.num_sums; ++i)
    job.blocks_each[i] = blocks((r.sums[i].rows + rows - 1) / rows);
  return job;
}

}  // namespace

void row_products_cuda(const ProductRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    if constexpr (sizeof(T) == 2)
      if (r.B >= kLeastTileRows) return by_tiles::launch<T>(r);
    Job job = job_of<T>(r);
    auto launch = [&]<int kB>(std::integral_constant<int, kB>) {
      size_t shared = 0;
      for (int i = 0; i < r.num_sums; ++i)
        if (const ProductRows::Term& t = r.sums[i].terms[0]; t.norm_weight)
          shared = std::max(shared, static_cast<size_t>((r.B + 2) * t.columns) * sizeof(T));
      launch_early(product_kernel<T, kB>,
                   {job.blocks_each[0] + job.blocks_each[1], kThreads, shared}, job);
    };
    if (r.B == 1) return launch(std::integral_constant<int, 1>());
    if (r.B == 2) return launch(std::integral_constant<int, 2>());
    if constexpr (sizeof(T) > 2) {
      if (r.B <= 4) return launch(std::integral_constant<int, 4>());
      return launch(std::integral_constant<int, 8>());
    }
  });
  check_launch("a product of rows", r.B, r.sums[0].rows);
}

bool row_products_fit(Element type, int64_t B) {
  bool tiles = type == Element::kHalf || type == Element::kBFloat16;
  return !tiles || B < kLeastTileRows ||
         device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= by_tiles::kMostShared;
}

}  // namespace neox
