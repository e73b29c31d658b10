// 2-bit weights: a byte holds the codes of four quads of columns.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_bits_avx512.h"

namespace leq::cpu {
namespace {

struct Bits2 {
  static constexpr int kLowBits = 2;
  static constexpr bool kThirdPlane = false;
  static constexpr int kShift = 2;

  // Bits 0 and 1, or 2 and 3, of the byte or of its upper half.
  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t*) {
    __m512i bytes = _mm512_load_si512(low + kQuad / 4 * 256);
    if constexpr (kQuad % 4 >= 2) bytes = _mm512_srli_epi16(bytes, 4);
    return _mm512_and_si512(bytes, _mm512_set1_epi8(kQuad % 2 == 0 ? 3 : 12));
  }
};

}  // namespace

void bits2_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits2>(panel); }

}  // namespace leq::cpu
