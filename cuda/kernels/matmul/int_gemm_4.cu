// Tensor-core matmuls with weights of 4 bits.
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_int_gemm_4(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  launch_bits<4>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
