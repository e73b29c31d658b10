// Tensor-core matmuls with weights of 8 bits.
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

template void launch_int_gemm<8>(const IntMatmul&, GemmTile, rt::Stream&);

}  // namespace leq::LEQ_GPU
