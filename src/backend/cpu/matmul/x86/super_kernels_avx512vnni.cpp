// Codes under superblock scales on AVX-512 VNNI.
#include <immintrin.h>

#include "backend/cpu/matmul/x86/lanes_avx512.h"
#include "backend/cpu/matmul/x86/super_tiles.h"

namespace leq::cpu {
namespace {

struct SuperLanes : Lanes512 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints inputs) {
    sum = _mm512_dpbusd_epi32(sum, codes, inputs);
  }
  static inline Ints from_i8(const std::uint8_t* from) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
};

}  // namespace

void super_avx512vnni(const SuperPanel& panel) noexcept { super_of_bits<SuperLanes, 1, 6>(panel); }

}  // namespace leq::cpu
