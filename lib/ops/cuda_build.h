// Whether this program can use GPUs at all.
#pragma once

namespace neox {

bool built_with_cuda();

}  // namespace neox
