// The table of the AVX2 matmul kernels. With many tokens, 8-bit codes are multiplied by vpmaddwd,
// because vpmaddubsw would saturate, and codes of fewer bits by vpmaddubsw.
#include "backend/cpu/matmul/x86/lanes_avx2.h"
#include "backend/cpu/matmul/x86/matmul_blocks.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

constexpr int kTokens = 6;  // 12 of 16 registers hold sums

struct Avx2 {
  using Signed = WordProducts<Lanes256, kTokens, WideCodes<Lanes256>>;
  using Bytes = WordProducts<Lanes256, kTokens, WideDifferences<Lanes256>>;
  template <int kBits>
  using Bits = NarrowProducts<Lanes256, kTokens, kBits>;
  static constexpr Start kSigned = Start::none;
  static constexpr Start kBytes = Start::none;
};

}  // namespace

const MatmulKernels& matmul_kernels_avx2() {
  static constexpr MatmulKernels kKernels = block_kernels<Avx2>(Isa::avx2, "6x16");
  return kKernels;
}

}  // namespace leq::cpu
