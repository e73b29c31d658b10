// 4-bit weights: a byte holds the codes of two quads of columns.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_bits_avx512.h"

namespace leq::cpu {
namespace {

struct Bits4 {
  static constexpr int kLowBits = 4;
  static constexpr bool kThirdPlane = false;
  static constexpr int kShift = 4;

  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t*) {
    const __m512i bytes = _mm512_load_si512(low + kQuad / 2 * 256);
    const __m512i mask = _mm512_set1_epi8(15);
    return kQuad % 2 == 0 ? _mm512_and_si512(bytes, mask) : _mm512_andnot_si512(mask, bytes);
  }
};

}  // namespace

void bits4_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits4>(panel); }

}  // namespace leq::cpu
