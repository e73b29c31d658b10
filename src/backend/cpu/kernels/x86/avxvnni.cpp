// AVX2's kernels, but bytes are multiplied in quads by AVX-VNNI's vpdpbusd: int8 keys of attention,
// and matmuls of many tokens.
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/blocks.h"
#include "backend/cpu/kernels/x86/int8_scores.h"
#include "backend/cpu/kernels/x86/lanes_avx2.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

struct DotLanes : Lanes256 {
  // c += products of u8 x s8 quads, in the short encoding, which does not need AVX-512.
  static inline __attribute__((always_inline)) void dot(Ints& c, Ints u8, Ints s8) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(u8), "x"(s8));
  }
};

// Tiles of six tokens: 12 of 16 registers hold sums.
template <class Source, Unsigned kSide>
using Dots = DotProducts<DotLanes, 6, Source, kSide>;

struct AvxVnni {
  using Signed = Dots<PanelCodes<DotLanes>, Unsigned::inputs>;
  using Bytes = Dots<PanelCodes<DotLanes>, Unsigned::codes>;
  template <int kBits>
  using Bits = Dots<UnpackedCodes<DotLanes, kBits>, Unsigned::codes>;
  using Table = Dots<TableCodes<DotLanes>, Unsigned::codes>;
  using ShortBits4 = Bits<4>;
  using SmallTable = Table;
  using HalfTable = Dots<TableCodes<DotLanes, 16>, Unsigned::codes>;
  static constexpr Start kSigned = Start::weights;
  static constexpr Start kBytes = Start::zeros;
};

MatmulKernels matmuls() {
  MatmulKernels kernels = block_kernels<AvxVnni>(Isa::avxvnni, "6x16");
  const MatmulKernels& avx2 = *level_avx2().matmul;
  kernels.f32 = avx2.f32;
  kernels.f16 = avx2.f16;
  kernels.bf16 = avx2.bf16;
  kernels.super = avx2.super;
  kernels.float_tile = avx2.float_tile;
  return kernels;
}

AttentionKernels with_quads() {
  AttentionKernels kernels = *level_avx2().attention;
  kernels.kv[2].scores = int8_scores<QuadProducts<DotLanes>>;
  return kernels;
}

}  // namespace

const KernelLevel& level_avxvnni() {
  static const MatmulKernels kMatmuls = matmuls();
  static const AttentionKernels kAttention = with_quads();
  const KernelLevel& avx2 = level_avx2();
  static const KernelLevel kLevel = {&kMatmuls, avx2.rows, &kAttention, avx2.packed, avx2.delta};
  return kLevel;
}

}  // namespace leq::cpu
