// Matmuls of f32 activations with weights of f16 and bf16 on wgmma.
#include "cuda/kernels/matmul/float_gemm_wgmma_launch.cuh"

namespace leq::LEQ_GPU {

void launch_float_wgmma_f16(const FloatMatmul& a, rt::Stream& stream) {
  launch_wgmma<HalfWeights<2>>(a, stream);
}
void launch_float_wgmma_bf16(const FloatMatmul& a, rt::Stream& stream) {
  launch_wgmma<HalfWeights<3>>(a, stream);
}

}  // namespace leq::LEQ_GPU
