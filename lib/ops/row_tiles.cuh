// Products of more than two rows of 16 bits by tensor cores, which take eight rows in the time of
// one. Eight rows of the weights are a tile. A block, of which there is one for each
// multiprocessor, has some tiles one after the other, and its warps share their columns, kStep at a
// time. A warp keeps kSlots such pieces under way in shared memory; the first ones are asked for
// before the block waits for the kernel that makes x. A norm is computed by each block for itself.
#pragma once
#include "ops/row_tile_parts.cuh"

namespace neox::cuda {

constexpr int64_t kLeastTileRows = 3;  // of x; fewer are faster without (docs/decisions/014)

namespace by_tiles {

constexpr int kSlots = 5, kBlocks = 2;  // of a warp; of a multiprocessor
// Loads of 16 bytes for a row of a piece, those of each of the lanes that multiply it, and rows
// that a warp asks for at once.
constexpr int kChunks = kPieceBytes / 16, kLoads = kChunks / kQuarters, kAtOnce = 32 / kChunks;
template <class T>
constexpr int kAllSteps = kWarps* kStep<T>;  // columns from a warp's piece to its next

// Shared memory for rows of x that are multiplied as they are; longer ones stay where they are.
constexpr int64_t kMostCopiedBytes = 48 << 10;
constexpr int64_t kMostTiles = 64;  // of a block, times rows of x
// Of a block: the rings, the sums of all warps, and x, also normed (kMostNormedBytes is less).
constexpr int64_t kMostShared = int64_t{kSlots} * kWarps * kSlotBytes +
                                kMostTiles * kWarps * kRows * int64_t{sizeof(float)} +
                                kMostCopiedBytes;

// Where load `chunk` of a row of a piece is in its slot: neighbouring rows are in other banks.
__device__ inline int offset_of(int row, int chunk) {
  return row * kPieceBytes + (chunk ^ row % 2 * kQuarters) * 16;
}

// What one lane asks for of a term's weights: loads of 16 bytes, of two rows at once by the warp.
template <class T>
struct Source {
  const T* at;         // of the tile: this lane's row and column in the warp's first piece
  int columns, steps;  // of all; pieces of a tile that are this warp's

  __device__ Source(const Place<T>& p, int term) : at(nullptr), columns(0), steps(0) {
    if (term >= p.sum.num_terms) return;
    const ProductRows::Term& t = p.sum.terms[term];
    columns = static_cast<int>(t.columns);
    steps = (columns - p.warp * kStep<T> + kAllSteps<T> - 1) / kAllSteps<T>;
    if (columns <= p.warp * kStep<T>) steps = 0;
    at = static_cast<const T*>(t.weight) + int64_t{p.first_row + p.lane / kChunks} * columns +
         p.warp * kStep<T> + p.lane % kChunks * kPack<T>;
  }
  __device__ void next_tile() { at += kRows * columns; }
};

// A warp's way over its pieces: of each tile those of one term after the other.
template <class T>
class Fetch {
  Source<T> one_, two_;
  int step_ = 0, tiles_, column_, rows_;  // rows_: behind this lane's first one
  unsigned char* to_;                     // this lane's first place in the ring

 public:
  __device__ explicit Fetch(const Place<T>& p)
      : one_(p, 0),
        two_(p, 1),
        tiles_(one_.steps + two_.steps > 0 ? p.tiles : 0),
        column_(p.warp * kStep<T> + p.lane % kChunks * kPack<T>),
        rows_(static_cast<int>(p.sum.rows) - p.first_row - p.lane / kChunks),
        to_(p.ring + offset_of(p.lane / kChunks, p.lane % kChunks)) {}
  __device__ int steps(int term) const { return term == 0 ? one_.steps : two_.steps; }

  // Asks for a piece, if there is one more.
  __device__ void operator()(int slot) {
    if (tiles_ > 0) {
      bool first = step_ < one_.steps;
      const T* from = first ? one_.at : two_.at;
      int columns = first ? one_.columns : two_.columns,
          ahead = (first ? step_ : step_ - one_.steps) * kAllSteps<T>;
      bool inside = column_ + ahead < columns;
      from += ahead;
#pragma unroll
      for (int i = 0; i < kRows; i += kAtOnce)
        begin_copy(to_ + slot * kSlotBytes + i * kPieceBytes, from + i * columns,
                   inside && i < rows_);
      if (++step_ == one_.steps + two_.steps) {
        step_ = 0;
        --tiles_;
        rows_ -= kRows;
        one_.next_tile();
        two_.next_tile();
      }
    }
    end_copies();
  }
};

// The rows of x, or of what a norm has made of it, that a term multiplies: at this warp's first
// piece.
template <class T>
struct Rows {
  const T* at;
  int columns, pitch;  // columns: behind this lane's first one

  __device__ Rows(const Place<T>& p, const T* rows, int pitch, int64_t of_term)
      : at(rows + p.warp * kStep<T> + p.quarter * kPack<T>),
        columns(static_cast<int>(of_term) - p.warp * kStep<T> - p.quarter * kPack<T>),
        pitch(pitch) {}
  // Load i of a piece, zeros where there is nothing.
  __device__ Words<T> load(int B, int b, int i) const {
    constexpr int kEach = kQuarters * kPack<T>;
    Words<T> x{};
    if (b < B && i * kEach < columns) x = load_words<T>(at + b * pitch + i * kEach);
    return x;
  }
  __device__ void advance() {
    at += kAllSteps<T>;
    columns -= kAllSteps<T>;
  }
};

// Of row `row` of x with two rows of weights each. Neighbouring loads have sums of their own,
// because a product waits long for the one before.
template <class T>
struct Sums {
  float of[2][4] = {};

  __device__ void add(const Place<T>& p, const Rows<T>& rows, const Words<T> (&w)[kLoads]) {
    Words<T> x[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) x[i] = rows.load(p.B, p.row, i);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint4 a = x[i].words[0], b = w[i].words[0];
      add_row_products(T(), of[i % 2], {a.x, a.y}, {b.x, b.y});
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint4 a = x[i].words[0], b = w[i].words[0];
      add_row_products(T(), of[i % 2], {a.z, a.w}, {b.z, b.w});
    }
  }
  __device__ void put(const Place<T>& p, int tile) {
    if (p.row >= p.B) return;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      p.part(tile, p.warp, 2 * p.quarter + j)[p.row] = of[0][j] + of[1][j];
  }
};

// The products of all tiles into p.parts.
template <class T>
__device__ void multiply(const Place<T>& p, const Rows<T> (&terms)[2], Fetch<T>& fetch) {
  // Even and odd rows have the loads of a pair the other way round (offset_of()).
  const unsigned char* of_lane = p.ring + offset_of(p.row, p.quarter);
  int other = p.row % 2 == 0 ? kQuarters * 16 : -kQuarters * 16, slot = 0;
#pragma unroll 1
  for (int tile = 0; tile < p.tiles; ++tile) {
    Sums<T> sums;
    auto run = [&](Rows<T> rows, int steps) {
#pragma unroll 1
      for (; steps > 0; --steps) {
        const unsigned char* at = of_lane + slot * kSlotBytes;
        await_copies<kSlots - 1>();
        __syncwarp();  // those of the other lanes, too
        Words<T> w[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
          w[i] = load_words<T>(
              reinterpret_cast<const T*>(at + i / 2 * 2 * kQuarters * 16 + i % 2 * other));
        sums.add(p, rows, w);
        rows.advance();
        __syncwarp();  // all lanes have read it
        fetch(slot);
        slot = slot + 1 == p.slots ? 0 : slot + 1;
      }
    };
    run(terms[0], fetch.steps(0));
    run(terms[1], fetch.steps(1));
    sums.put(p, tile);
  }
}

// x lies in shared memory, one term behind the other, or where it was.
template <class T>
__device__ void multiply(const Place<T>& p, bool shared, Fetch<T>& fetch) {
  const ProductRows::Term &one = p.sum.terms[0], &two = p.sum.terms[1];
  int64_t second = p.sum.num_terms > 1 ? two.columns : 0;
  if (shared) {
    auto pitch = static_cast<int>(pitch_of<T>(one.columns));
    const Rows<T> terms[] = {{p, p.x, pitch, one.columns},
                             {p, p.x + p.B * pitch, static_cast<int>(pitch_of<T>(second)), second}};
    multiply(p, terms, fetch);
  } else {
    const Rows<T> terms[] = {
        {p, static_cast<const T*>(one.x), static_cast<int>(one.columns), one.columns},
        {p, static_cast<const T*>(two.x), static_cast<int>(second), second}};
    multiply(p, terms, fetch);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    product_kernel(const __grid_constant__ Job job) {
  extern __shared__ uint4 memory[];
  Place<T> p(job, reinterpret_cast<unsigned char*>(memory));
  next_kernel_may_begin();
  Fetch<T> fetch(p);
#pragma unroll 1
  for (int i = 0; i < kSlots; ++i)
    if (i < p.slots)
      fetch(i);
    else
      end_copies();
  bool norms = p.sum.terms[0].norm_weight;
  T* weights = p.x + p.B * pitch_of<T>(p.sum.terms[0].columns);
  if (norms) copy_norm<T>(p.sum.terms[0], weights, kThreads);
  int tid = static_cast<int>(threadIdx.x), count = p.tiles * kRows * p.B;
  auto result = [&](int i) { return Result<T>(p.sum, p.tiles * kRows, p.first_row, p.B, i); };
  Result<T> first = result(tid);
  float rest = first.bias(p.sum);
  if (norms) __syncthreads();  // all of the norm's weights are there
  wait_for_kernel_before();
  rest += first.residual(p.sum);
  if (norms)
    norm_rows(p, job.rows.options, weights);
  else if (job.copies)
    copy_rows(p);
  __syncthreads();
  multiply(p, norms || job.copies, fetch);
  __syncthreads();
  first.store(p.sum, rest + p.product(first));
#pragma unroll 1
  for (int i = tid + kThreads; i - tid < count; i += kThreads) {
    Result<T> more = result(i);
    more.store(p.sum, more.bias(p.sum) + more.residual(p.sum) + p.product(more));
  }
}

// That have so many tiles each.
inline int64_t blocks_of(const ProductRows::Sum& sum, int64_t tiles) {
  int64_t rows = tiles * kRows;
  return (sum.rows + rows - 1) / rows;
}

// Pieces of a tile that one warp has.
template <class T>
int64_t steps_of(const ProductRows::Sum& sum) {
  int64_t steps = 0;
  for (int t = 0; t < sum.num_terms; ++t)
    steps += (sum.terms[t].columns + kAllSteps<T> - 1) / kAllSteps<T>;
  return steps;
}

// Shared memory for x: normed, with the norm's weight and bias, or copied.
template <class T>
int64_t bytes_of_x(const ProductRows::Sum& sum, int64_t B) {
  int64_t columns = sum.terms[0].norm_weight ? 2 * sum.terms[0].columns : 0;
  for (int t = 0; t < sum.num_terms; ++t) columns += B * pitch_of<T>(sum.terms[t].columns);
  return columns * static_cast<int64_t>(sizeof(T));
}

// Tiles of a block such that all blocks run at once.
template <class T>
Job job_of(const ProductRows& r) {
  Job job{.rows = r, .tiles = 0, .slots = 1, .copies = true, .first_blocks = 0};
  int64_t most = std::max<int64_t>(kMostTiles / r.B, 1), tiles = 0, blocks = 0;
  do {
    ++tiles;
    blocks = 0;
    for (int i = 0; i < r.num_sums; ++i) blocks += blocks_of(r.sums[i], tiles);
  } while (blocks > multiprocessors() && tiles < most);
  job.tiles = static_cast<int>(tiles);
  job.first_blocks = cuda::blocks(blocks_of(r.sums[0], tiles));
  int64_t steps = 0;
  for (int i = 0; i < r.num_sums; ++i) {
    steps = std::max(steps, tiles * steps_of<T>(r.sums[i]));
    job.copies = job.copies && bytes_of_x<T>(r.sums[i], r.B) <= kMostCopiedBytes;
  }
  job.slots = static_cast<int>(std::min<int64_t>(steps, kSlots));
  return job;
}

template <class T>
void launch(const ProductRows& r) {
  Job job = job_of<T>(r);
  int64_t all = 0, x = 0;
  for (int i = 0; i < r.num_sums; ++i) {
    all += blocks_of(r.sums[i], job.tiles);
    if (job.copies || r.sums[i].terms[0].norm_weight)
      x = std::max(x, bytes_of_x<T>(r.sums[i], r.B));
  }
  auto shared = static_cast<size_t>(ring_bytes(job) + parts_bytes(job) + x);
  // So much that kernels that follow each other have room beside each other.
  cudaFuncSetAttribute(product_kernel<T>, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  cudaError_t status = cudaFuncSetAttribute(
      product_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  check(status == cudaSuccess, "a product of ", r.B, " rows takes ", shared,
        " bytes of a block's shared memory: ", cudaGetErrorString(status));
  launch_early(product_kernel<T>, {cuda::blocks(all), kThreads, shared}, job);
}

}  // namespace by_tiles
}  // namespace neox::cuda
