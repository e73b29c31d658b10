// Matmuls on wgmma with weights of 4, 3 or 2 bits, which always have groups.
#include "cuda/kernels/matmul/int_gemm_wgmma_launch.cuh"

namespace leq::LEQ_GPU {

void launch_int_wgmma_4(const IntMatmul& a, rt::Stream& stream) {
  launch_wgmma<4, 128, 128, true>(a, stream);
}
void launch_int_wgmma_3(const IntMatmul& a, rt::Stream& stream) {
  launch_wgmma<3, 128, 128, true>(a, stream);
}
void launch_int_wgmma_2(const IntMatmul& a, rt::Stream& stream) {
  launch_wgmma<2, 128, 128, true>(a, stream);
}

}  // namespace leq::LEQ_GPU
