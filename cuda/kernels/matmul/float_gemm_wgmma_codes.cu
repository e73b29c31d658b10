// Matmuls of f32 activations with codes of 8, 4, 3 or 2 bits on wgmma.
#include "cuda/kernels/matmul/float_gemm_wgmma_launch.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {

void launch_float_wgmma_codes(const WeightOnlyMatmul& a, rt::Stream& stream) {
  launch_by_bits(a.segments[0].weight.bits,
                 [&]<int bits>() { launch_wgmma<CodeWeights<bits>>(a, stream); });
}

}  // namespace leq::LEQ_GPU
