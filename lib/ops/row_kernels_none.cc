#include "ops/row_kernels.h"

namespace neox {

std::vector<const RowKernels*> all_row_kernels() { return {&kPlainRowKernels}; }

const RowKernels& row_kernels() { return kPlainRowKernels; }

}  // namespace neox
