// Pages of 2 MB instead of 4 kB for memory that is read over and over: decoding reads all weights
// for each token, a quarter faster than from small pages.
#pragma once
#include <cstdint>

#include "model/gpt_neox.h"

namespace neox {

// Where the kernel has such pages left; what they hold stays as it is.
void use_huge_pages(void* data, int64_t bytes);
// The parameters, on a CPU.
void use_huge_pages(GptNeoX& model);

}  // namespace neox
