// 3-bit weights: a byte of the first plane holds the low two bits of four quads of columns, one of
// the second plane the third bits of eight.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_bits_avx512.h"

namespace leq::cpu {
namespace {

struct Bits3 {
  static constexpr int kLowBits = 2;
  static constexpr bool kThirdPlane = true;
  static constexpr int kShift = 2;

  // Even quads lie in bits 0 to 2, odd ones in bits 2 to 4.
  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t* third) {
    constexpr int kPlace = kQuad % 2 == 0 ? 0 : 2;
    constexpr int kLeft = kPlace + 2 - kQuad;  // the third bit's way from bit kQuad
    __m512i bytes = _mm512_load_si512(low + kQuad / 4 * 256);
    if constexpr (kQuad % 4 >= 2) bytes = _mm512_srli_epi16(bytes, 4);
    __m512i bits = _mm512_load_si512(third);
    if constexpr (kLeft > 0) bits = _mm512_slli_epi16(bits, kLeft);
    if constexpr (kLeft < 0) bits = _mm512_srli_epi16(bits, -kLeft);
    bytes = _mm512_and_si512(bytes, _mm512_set1_epi8(3 << kPlace));
    // bytes | (bits & mask), one instruction.
    return _mm512_ternarylogic_epi32(bytes, bits, _mm512_set1_epi8(4 << kPlace), 0xf8);
  }
};

}  // namespace

void bits3_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits3>(panel); }

}  // namespace leq::cpu
