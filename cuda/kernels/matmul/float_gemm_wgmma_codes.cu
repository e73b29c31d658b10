// Matmuls of f32 activations with codes of 8, 4, 3 or 2 bits on wgmma.
#include "cuda/kernels/matmul/float_gemm_wgmma_launch.cuh"

namespace leq::LEQ_GPU {

void launch_float_wgmma_codes(const WeightOnlyMatmul& a, rt::Stream& stream) {
  switch (a.segments[0].weight.bits) {
    case 2:
      return launch_wgmma<CodeWeights<2>>(a, stream);
    case 3:
      return launch_wgmma<CodeWeights<3>>(a, stream);
    case 4:
      return launch_wgmma<CodeWeights<4>>(a, stream);
    default:
      return launch_wgmma<CodeWeights<8>>(a, stream);
  }
}

}  // namespace leq::LEQ_GPU
