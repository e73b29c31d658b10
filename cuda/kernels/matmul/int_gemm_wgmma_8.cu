// Matmuls on wgmma with weights of 8 bits. Tiles of 256 tokens minimize reads; if there are groups,
// their totals leave registers for only 128 tokens. uint8 becomes signed bytes in registers.
#include "cuda/kernels/matmul/int_gemm_wgmma_launch.cuh"

namespace leq::LEQ_GPU {

template <>
void launch_int_wgmma<8>(const IntMatmul& a, rt::Stream& stream) {
  const bool grouped = a.segments[0].weight.group > 0 || a.x.group > 0;
  if (a.segments[0].weight.zeros != nullptr) {
    return grouped ? launch_wgmma<8, 128, 128, true>(a, stream)
                   : launch_wgmma<8, 0, 128, true>(a, stream);
  }
  if (grouped) return launch_wgmma<8, 128, 128, false>(a, stream);
  if (a.tokens <= 128) return launch_wgmma<8, 0, 128, false>(a, stream);
  launch_wgmma<8, 0, 256, false>(a, stream);
}

}  // namespace leq::LEQ_GPU
