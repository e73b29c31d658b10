// Tensor-core matmuls with weights of 8 bits.
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_int_gemm_8(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  launch_bits<8>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
