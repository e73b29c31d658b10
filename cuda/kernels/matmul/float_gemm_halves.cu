// Matmuls of f32 activations with weights of f16 and bf16.
#include "cuda/kernels/matmul/float_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_float_gemm_f16(const FloatMatmul& a, FloatTile tile, rt::Stream& stream) {
  launch_terms<HalfWeights<2>>(a, tile, stream);
}
void launch_float_gemm_bf16(const FloatMatmul& a, FloatTile tile, rt::Stream& stream) {
  launch_terms<HalfWeights<3>>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
