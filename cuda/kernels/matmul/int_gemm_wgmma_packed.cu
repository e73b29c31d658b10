// Matmuls on wgmma with weights of 4, 3 or 2 bits, which always have groups.
#include "cuda/kernels/matmul/int_gemm_wgmma_launch.cuh"

namespace leq::LEQ_GPU {

template <int bits>
void launch_int_wgmma(const IntMatmul& a, rt::Stream& stream) {
  launch_wgmma<bits, 128, 128, true>(a, stream);
}
template void launch_int_wgmma<4>(const IntMatmul&, rt::Stream&);
template void launch_int_wgmma<3>(const IntMatmul&, rt::Stream&);
template void launch_int_wgmma<2>(const IntMatmul&, rt::Stream&);

}  // namespace leq::LEQ_GPU
