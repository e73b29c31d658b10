// Codes under superblock scales on AVX-512 without VNNI. Two products, each at most 63 * 127, fit
// into 16 bits.
#include <immintrin.h>

#include "backend/cpu/matmul/x86/lanes_avx512.h"
#include "backend/cpu/matmul/x86/super_tiles.h"

namespace leq::cpu {
namespace {

struct SuperLanes : Lanes512 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints inputs) {
    sum = add32(sum, products16(_mm512_maddubs_epi16(codes, inputs), repeat16(1)));
  }
  static inline Ints from_i8(const std::uint8_t* from) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
};

}  // namespace

void super_avx512(const SuperPanel& panel) noexcept { super_of_bits<SuperLanes, 1, 4>(panel); }

}  // namespace leq::cpu
