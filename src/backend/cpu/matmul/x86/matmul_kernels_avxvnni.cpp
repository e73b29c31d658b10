// AVX-VNNI: like AVX2, except that many tokens use the 256-bit dot product of bytes.
#include "backend/cpu/matmul/x86/lanes_avx2.h"
#include "backend/cpu/matmul/x86/matmul_blocks.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

struct DotLanes : Lanes256 {
  // c += products of u8 x s8 quads, in the short encoding, which does not need AVX-512.
  static inline __attribute__((always_inline)) void dot(Ints& c, Ints u8, Ints s8) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(u8), "x"(s8));
  }
};

constexpr int kTokens = 6;  // 12 of 16 registers hold sums
template <class Source, Unsigned kSide>
using Dots = DotProducts<DotLanes, kTokens, Source, kSide>;

struct AvxVnni {
  using Signed = Dots<PanelCodes<DotLanes>, Unsigned::inputs>;
  using Bytes = Dots<PanelCodes<DotLanes>, Unsigned::codes>;
  template <int kBits>
  using Bits = Dots<UnpackedCodes<DotLanes, kBits>, Unsigned::codes>;
  static constexpr Start kSigned = Start::weights;
  static constexpr Start kBytes = Start::zeros;
};

}  // namespace

const MatmulKernels& matmul_kernels_avxvnni() {
  static constexpr MatmulKernels kKernels = block_kernels<AvxVnni>(Isa::avxvnni, "6x16");
  return kKernels;
}

}  // namespace leq::cpu
