// Integer matmuls on AVX-512 without VNNI, for many tokens; few tokens use the AVX2 kernels.
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/blocks.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/super_tiles.h"
#include "backend/cpu/kernels/x86/super_words.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

struct Avx512 {
  // Sums are in 24 of the 32 registers; for Bits, 12 hold 32-bit sums and 12 others 16-bit sums.
  using Signed = WordProducts<Lanes512, 12, WideCodes<Lanes512>>;
  using Bytes = WordProducts<Lanes512, 12, WideDifferences<Lanes512>>;
  template <int kBits>
  using Bits = NarrowProducts<Lanes512, 6, kBits>;
  using Table = WordProducts<Lanes512, 12, WideDifferences<Lanes512, true>>;
  using ShortBits4 = ShortProducts<Lanes512, 6, UnpackedCodes<Lanes512, 4>, 32>;
  using SmallTable = ShortProducts<Lanes512, 6, TableCodes<Lanes512>, 16>;
  using HalfTable = ShortProducts<Lanes512, 6, TableCodes<Lanes512, 16>, 16>;
  static constexpr Start kSigned = Start::none;
  static constexpr Start kBytes = Start::none;
};

// Two products of codes under superblock scales, each at most 63 * 127, fit into 16 bits.
struct SuperLanes : Lanes512 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints inputs) {
    sum = add32(sum, products16(_mm512_maddubs_epi16(codes, inputs), repeat16(1)));
  }
};

}  // namespace

MatmulKernels int_matmuls_avx512() noexcept {
  MatmulKernels kernels = block_kernels<Avx512>(Isa::avx512, "12x32");
  kernels.super = super_by_count<super_of_bits<SuperLanes, 1, 4>, SuperWords<Lanes512, 12>::run>;
  return kernels;
}

}  // namespace leq::cpu
