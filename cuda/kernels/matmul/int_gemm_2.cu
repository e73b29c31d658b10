// Tensor-core matmuls with weights of 2 bits.
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_int_gemm_2(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  launch_bits<2>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
