// Tensor-core matmuls with weights of 3 bits.
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_int_gemm_3(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  launch_bits<3>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
