// Matrix products of cuBLAS and cuBLASLt, in their column-major terms.
#include <cublasLt.h>
#include <cublas_v2.h>

#include "machine.h"

using namespace cuda_stand_in;

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
};

struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
};

struct Product {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

struct Shape {
  int64_t m, n, k;
  int batch = 1;
};

const char* name_of(int type) {
  switch (type) {
    case CUDA_R_32F:
      return "fp32";
    case CUDA_R_64F:
      return "fp64";
    case CUDA_R_16F:
      return "fp16";
    case CUDA_R_16BF:
      return "bf16";
    default:
      return "?";
  }
}

cublasStatus_t multiply(cudaStream_t stream, const Product& p, const Shape& s, int in, int out) {
  auto guard = lock();
  const char* letters = "NTC";
  std::string what = concat("product ", letters[p.a], letters[p.b], " ", s.m, "x", s.n, "x", s.k,
                            ", ", name_of(in), " to ", name_of(out));
  if (s.batch > 1) what += concat(", batch ", s.batch);
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) what += concat(", epilogue ", p.epilogue);
  enqueue(stream, what);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply(cublasHandle_t handle, const Product& p, const Shape& s, int in, int out) {
  return multiply(reinterpret_cast<Handle*>(handle)->stream, p, s, in, out);
}

template <class T, class Pointer, class... Values>
cublasStatus_t create(Pointer* pointer, Values... values) {
  *pointer = reinterpret_cast<Pointer>(new T{values...});
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Pointer>
cublasStatus_t destroy(Pointer pointer) {
  delete reinterpret_cast<T*>(pointer);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) { return create<Handle>(handle); }
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return destroy<Handle>(handle); }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                            int m, int n, int k, const void*, const void*, cudaDataType in, int,
                            const void*, cudaDataType, int, const void*, void*, cudaDataType out,
                            int, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(handle, {ta, tb}, {m, n, k}, in, out);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta,
                                          cublasOperation_t tb, int m, int n, int k, const void*,
                                          const void*, cudaDataType in, int, long long, const void*,
                                          cudaDataType, int, long long, const void*, void*,
                                          cudaDataType out, int, long long, int batch,
                                          cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(handle, {ta, tb}, {m, n, k, batch}, in, out);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                              int m, int n, int k, const float*, const float*, int, const float*,
                              int, const float*, float*, int) {
  return multiply(handle, {ta, tb}, {m, n, k}, CUDA_R_32F, CUDA_R_32F);
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                              int m, int n, int k, const double*, const double*, int, const double*,
                              int, const double*, double*, int) {
  return multiply(handle, {ta, tb}, {m, n, k}, CUDA_R_64F, CUDA_R_64F);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k, const float*,
                                         const float*, int, long long, const float*, int, long long,
                                         const float*, float*, int, long long, int batch) {
  return multiply(handle, {ta, tb}, {m, n, k, batch}, CUDA_R_32F, CUDA_R_32F);
}

cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k, const double*,
                                         const double*, int, long long, const double*, int,
                                         long long, const double*, double*, int, long long,
                                         int batch) {
  return multiply(handle, {ta, tb}, {m, n, k, batch}, CUDA_R_64F, CUDA_R_64F);
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t,
                                        cudaDataType_t) {
  return create<Product>(product);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return destroy<Product>(product);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t) {
  auto* p = reinterpret_cast<Product*>(product);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
    p->a = *static_cast<const cublasOperation_t*>(value);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
    p->b = *static_cast<const cublasOperation_t*>(value);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) p->epilogue = *static_cast<const int*>(value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t) {
  return create<Layout>(layout, type, rows, columns);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t,
                                                cublasLtMatrixLayoutAttribute_t, const void*,
                                                size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create<int>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<int>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void*,
                              const void*, cublasLtMatrixLayout_t a, const void*,
                              cublasLtMatrixLayout_t, const void*, const void*,
                              cublasLtMatrixLayout_t c, void*, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  const auto& p = *reinterpret_cast<Product*>(product);
  const auto &left = *reinterpret_cast<Layout*>(a), &result = *reinterpret_cast<Layout*>(c);
  auto size = [](uint64_t n) { return static_cast<int64_t>(n); };
  int64_t k = size(p.a == CUBLAS_OP_N ? left.columns : left.rows);
  return multiply(stream, p, {size(result.rows), size(result.columns), k}, left.type, result.type);
}

}  // extern "C"
