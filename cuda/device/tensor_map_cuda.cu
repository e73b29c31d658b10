// Makes tensor maps by the driver's function, which the runtime looks up to avoid linking libcuda.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>

#include "base/error.h"
#include "cuda/rt/tensor_map.h"

namespace leq::LEQ_GPU::rt {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  constexpr const char* kName = "cuTensorMapEncodeTiled";
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion(kName, &found, 12000, cudaEnableDefault, &status);
#else
  const cudaError_t result = cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &status);
#endif
  require(result == cudaSuccess && status == cudaDriverEntryPointSuccess && found != nullptr,
          ErrorKind::no_device,
          "CUDA: the driver has no cuTensorMapEncodeTiled; it needs CUDA 12.0 or newer");
  return reinterpret_cast<Encode>(found);
}

CUtensorMapSwizzle swizzle_of(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::bytes_32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::bytes_64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::bytes_128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

}  // namespace

TensorMap make_tensor_map(const TiledBytes& matrix) {
  static const Encode encode = find_encode();
  // The first dimension is the one within a row.
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.columns),
                               static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(matrix.stride)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(matrix.box_columns),
                             static_cast<cuuint32_t>(matrix.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap made;
  const CUresult result =
      encode(&made, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(matrix.base), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(matrix.swizzle),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  ensure(result == CUDA_SUCCESS, "CUDA: the driver refuses a tensor map: [", matrix.rows, "][",
         matrix.columns, "], stride ", matrix.stride, ", box [", matrix.box_rows, "][",
         matrix.box_columns, "], error ", static_cast<int>(result));
  TensorMap map;
  static_assert(sizeof map == sizeof made && alignof(TensorMap) >= alignof(CUtensorMap));
  std::memcpy(map.bytes, &made, sizeof map);
  return map;
}

}  // namespace leq::LEQ_GPU::rt
