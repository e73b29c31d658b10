// Tensor-core matmuls with weights of 2 bits.
#include "cuda/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

void launch_int_gemm_2(const IntMatmul& a, rt::Stream& stream) { launch_bits<2>(a, stream); }

}  // namespace leq::LEQ_GPU
