// Tensor-core matmuls of inputs in two f16 parts with integer weights.
#include "cuda/kernels/matmul/float_gemm_launch.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {

void launch_float_gemm(const WeightOnlyMatmul& a, FloatTile tile, rt::Stream& stream) {
  launch_by_bits(a.segments[0].weight.bits,
                 [&]<int bits>() { launch_terms<CodeWeights<bits>>(a, tile, stream); });
}

}  // namespace leq::LEQ_GPU
