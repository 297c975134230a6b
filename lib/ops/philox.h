// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): random
// numbers as a pure function of (key, counter), the same on CPU and GPU. Nothing has a generator
// state.
#pragma once
#include <cstdint>
#include <string_view>

#ifdef __CUDACC__
#define NEOX_HOST_DEVICE __host__ __device__
#else
#define NEOX_HOST_DEVICE
#endif

namespace neox {

// A kernel's compiler adds zero to the upper half of each product that is written as one.
NEOX_HOST_DEVICE inline uint64_t full_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t{a} * b;
#endif
}

struct Random4 {
  uint32_t v[4];
};

NEOX_HOST_DEVICE inline Random4 philox(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32);
  uint32_t c2 = static_cast<uint32_t>(high), c3 = static_cast<uint32_t>(high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = full_product(0xD2511F53u, c0), p1 = full_product(0xCD9E8D57u, c2);
    uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n1 = static_cast<uint32_t>(p1);
    uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1, n3 = static_cast<uint32_t>(p0);
    c0 = n0, c1 = n1, c2 = n2, c3 = n3;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The key of a purpose: a run's seed and the name of a parameter or of a place in the model.
uint64_t random_key(int64_t seed, std::string_view name);

}  // namespace neox
