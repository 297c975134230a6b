// The device a run computes on: one GPU per process where this build and this machine have them,
// else the CPU.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "launch/control.h"
#include "launch/environment.h"
#include "launch/process_info.h"

namespace neox {

// Makes the device current. Throws (64) where the LibTorch that was loaded is not the one compiled
// with, and in a build for GPUs where the driver is too old for it (unless CUDA_VISIBLE_DEVICES
// hides all GPUs), where GPUs were allotted to this process and cannot be used, and where the GPUs
// that are visible do not do for the ranks of this node.
at::Device pick_device(const Environment& env, const ProcessInfo& process);

// The same for a process alone.
at::Device pick_device(const Environment& env);

// Its parts. A process that chooses a GPU only for others to use takes none of its memory, and may
// do so where a GPU is for one process alone (compute mode EXCLUSIVE_PROCESS).
at::Device choose_device(const Environment& env, const ProcessInfo& process);
void use_device(at::Device device);

// In a build for CPUs: what says that GPUs are meant; "" where nothing does, or
// CUDA_VISIBLE_DEVICES hides them. Where they were allotted, several ranks are refused, and one is
// warned.
std::string unused_gpus(const Environment& env, bool driver);

struct GpuChoice {
  int index = 0;  // among those visible
  std::string note;
};

// The GPU of this rank of the node: its local rank where each rank has one, 0 where one alone is
// visible, allotted to this process. Throws (64) with both counts for anything else.
GpuChoice choose_gpu(int visible, const ProcessInfo& process, const Environment& env);

// Collective over control; on CPUs it does nothing but meet. Throws (64) on all ranks, naming the
// ranks, where two have one GPU.
void check_devices_differ(const at::Device& device, const ProcessInfo& process, Control& control);

// What is wrong with the GPUs of the ranks, or "". Of each, by rank: "UUID PCI HOST", or "" on a
// CPU.
std::string shared_gpu(const std::vector<std::string>& gpus);

// "CPU, 2 threads, AVX512" or "cuda:0".
std::string describe_device(const at::Device& device);

}  // namespace neox
