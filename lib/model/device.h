// The device a run computes on. One GPU where this build and this machine have one, else the CPU.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "launch/environment.h"

namespace neox {

// Throws where GPUs were allotted to this process and the build, made for them, cannot use them.
at::Device pick_device(const Environment& env);

// "CPU, 2 threads, AVX512" or "cuda:0".
std::string describe_device(const at::Device& device);

}  // namespace neox
