// Matmuls of f32 activations with codes of 8 bits.
#include "cuda/kernels/matmul/float_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_float_gemm_8(const WeightOnlyMatmul& a, FloatTile tile, rt::Stream& stream) {
  launch_terms<CodeWeights<8>>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
