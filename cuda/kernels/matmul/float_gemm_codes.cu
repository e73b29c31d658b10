// Matmuls of f32 activations with codes of 8, 4, 3 or 2 bits.
#include "cuda/kernels/matmul/float_gemm_launch.cuh"

namespace leq::LEQ_GPU {

template void launch_float_gemm<8>(const WeightOnlyMatmul&, FloatTile, rt::Stream&);
template void launch_float_gemm<4>(const WeightOnlyMatmul&, FloatTile, rt::Stream&);
template void launch_float_gemm<3>(const WeightOnlyMatmul&, FloatTile, rt::Stream&);
template void launch_float_gemm<2>(const WeightOnlyMatmul&, FloatTile, rt::Stream&);

}  // namespace leq::LEQ_GPU
