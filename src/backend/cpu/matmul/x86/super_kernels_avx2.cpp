// Codes under superblock scales on AVX2. Two products, each at most 63 * 127, fit into 16 bits.
#include <immintrin.h>

#include "backend/cpu/matmul/x86/lanes_avx2.h"
#include "backend/cpu/matmul/x86/super_tiles.h"

namespace leq::cpu {
namespace {

struct SuperLanes : Lanes256 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints inputs) {
    sum = add32(sum, products16(_mm256_maddubs_epi16(codes, inputs), repeat16(1)));
  }
  static inline Ints from_i8(const std::uint8_t* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
};

}  // namespace

void super_avx2(const SuperPanel& panel) noexcept { super_of_bits<SuperLanes, 1, 3>(panel); }

}  // namespace leq::cpu
