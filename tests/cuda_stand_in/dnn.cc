// cuDNN's graphs, as far as LibTorch's attention goes: every graph has one plan, without workspace.
#include <cudnn.h>

#include <cstdio>

#include "machine.h"

using namespace cuda_stand_in;

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
};

template <class T>
cudnnStatus_t give(T value, int64_t* count, void* values) {
  if (count) *count = 1;
  if (values) *static_cast<T*>(values) = value;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_number(int64_t count, int64_t* found) {
  if (found) *found = count;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = reinterpret_cast<Handle*>(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}

const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of the stand-in"; }
void cudnnGetLastErrorString(char* text, size_t size) {
  std::snprintf(text, size, "an error of the stand-in");
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new int;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<int*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                       cudnnBackendAttributeType_t, int64_t, const void*) {
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t, int64_t* count,
                                       void* values) {
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:  // descriptors that the caller made
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return give_number(1, count);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give<int64_t>(0, count, values);
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
      return give<int32_t>(0, count, values);
    default:
      return give_number(0, count);
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t,
                                  cudnnBackendDescriptor_t) {
  auto guard = lock();
  enqueue(reinterpret_cast<Handle*>(handle)->stream, "cuDNN graph");
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
