// Tensor-core matmuls with f16 weights (inputs in two parts) and bf16 weights (three).
#include "cuda/kernels/matmul/float_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_float_gemm(const FloatMatmul& a, FloatTile tile, rt::Stream& stream) {
  const bool f16 = a.segments[0].weight.type == FloatType::f16;
  return f16 ? launch_terms<HalfWeights<2>>(a, tile, stream)
             : launch_terms<HalfWeights<3>>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
