// Tensor-core matmuls with weights of 4, 3 or 2 bits, or of codes with a table.
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {

template void launch_int_gemm<kTableBits>(const IntMatmul&, GemmTile, rt::Stream&);
template void launch_int_gemm<4>(const IntMatmul&, GemmTile, rt::Stream&);
template void launch_int_gemm<3>(const IntMatmul&, GemmTile, rt::Stream&);
template void launch_int_gemm<2>(const IntMatmul&, GemmTile, rt::Stream&);

}  // namespace leq::LEQ_GPU
