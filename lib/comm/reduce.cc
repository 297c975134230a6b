#include "comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace neox {
namespace {

using Op = Communicator::Op;

constexpr int64_t kBlock = 2048;  // elements; a block stays in the innermost cache

template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, at::BFloat16> || std::is_same_v<T, at::Half>, float, T>;

template <class A>
A add(A a, A b) {
  if constexpr (std::is_integral_v<A>)  // wraps around, as ATen's
    return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) +
                          static_cast<std::make_unsigned_t<A>>(b));
  else
    return a + b;
}

template <class A>
A maximum(A a, A b) {
  return a > b || a != a ? a : b;
}

template <class T, Op kOp>
void reduce(std::span<const void* const> from, std::span<void* const> to, int64_t numel) {
  using A = Accumulator<T>;
  A block[kBlock];
  T rounded[kBlock];
  for (int64_t start = 0; start < numel; start += kBlock) {
    int64_t n = std::min(kBlock, numel - start);
    const T* first = static_cast<const T*>(from[0]) + start;
    for (int64_t i = 0; i < n; ++i) block[i] = static_cast<A>(first[i]);
    for (size_t r = 1; r < from.size(); ++r) {
      const T* next = static_cast<const T*>(from[r]) + start;
      for (int64_t i = 0; i < n; ++i)
        block[i] = kOp == Op::kSum ? add(block[i], static_cast<A>(next[i]))
                                   : maximum(block[i], static_cast<A>(next[i]));
    }
    const void* result = block;
    if constexpr (!std::is_same_v<A, T>) {
      for (int64_t i = 0; i < n; ++i) rounded[i] = static_cast<T>(block[i]);
      result = rounded;
    }
    for (void* out : to)
      std::memcpy(static_cast<T*>(out) + start, result, static_cast<size_t>(n) * sizeof(T));
  }
}

template <class T>
void reduce_type(Op op, std::span<const void* const> from, std::span<void* const> to,
                 int64_t numel) {
  op == Op::kSum ? reduce<T, Op::kSum>(from, to, numel) : reduce<T, Op::kMax>(from, to, numel);
}

}  // namespace

void reduce_ranks(Op op, at::ScalarType type, std::span<const void* const> from,
                  std::span<void* const> to, int64_t numel) {
  switch (type) {
    case at::kFloat:
      return reduce_type<float>(op, from, to, numel);
    case at::kDouble:
      return reduce_type<double>(op, from, to, numel);
    case at::kBFloat16:
      return reduce_type<at::BFloat16>(op, from, to, numel);
    case at::kHalf:
      return reduce_type<at::Half>(op, from, to, numel);
    case at::kLong:
      return reduce_type<int64_t>(op, from, to, numel);
    case at::kInt:
      return reduce_type<int32_t>(op, from, to, numel);
    case at::kShort:
      return reduce_type<int16_t>(op, from, to, numel);
    case at::kChar:
      return reduce_type<int8_t>(op, from, to, numel);
    case at::kByte:
      return reduce_type<uint8_t>(op, from, to, numel);
    case at::kBool:  // 0 or 1: the maximum is `or`
      return reduce_type<uint8_t>(Op::kMax, from, to, numel);
    default:
      fail(Exit::kInternal, "ranks cannot reduce tensors of type ", type);
  }
}

}  // namespace neox
