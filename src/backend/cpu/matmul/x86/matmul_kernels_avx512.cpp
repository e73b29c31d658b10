// AVX-512 without VNNI. Float weights and many tokens use 512-bit registers; few tokens use the
// AVX2 kernels.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/lanes_avx512.h"
#include "backend/cpu/matmul/x86/matmul_blocks.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

struct Avx512 {
  // Sums are in 24 of the 32 registers; for Bits, 12 hold 32-bit sums and 12 others 16-bit sums.
  using Signed = WordProducts<Lanes512, 12, WideCodes<Lanes512>>;
  using Bytes = WordProducts<Lanes512, 12, WideDifferences<Lanes512>>;
  template <int kBits>
  using Bits = NarrowProducts<Lanes512, 6, kBits>;
  static constexpr Start kSigned = Start::none;
  static constexpr Start kBytes = Start::none;
};

constexpr MatmulKernels with_floats() {
  MatmulKernels kernels = block_kernels<Avx512>(Isa::avx512, "12x32");
  kernels.f32 = f32_avx512;
  kernels.f16 = f16_avx512;
  kernels.bf16 = bf16_avx512;
  kernels.float_tile = "6x4";
  return kernels;
}

}  // namespace

const MatmulKernels& matmul_kernels_avx512() {
  static constexpr MatmulKernels kKernels = with_floats();
  return kKernels;
}

}  // namespace leq::cpu
