// Limits of AMX: int8 products by tdpbusd on four sums of 16 x 16; the rest as for AVX-512.
#include <immintrin.h>

#include "tools/bench/parts/x86/limit_steps.h"

namespace leq::cpu {
namespace {

struct alignas(64) TileLayout {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
};

// Every product is 3 * -5; the result adds one number of each tile. The assembly declares which
// memory it loads tiles from, which the intrinsics of g++ 12 do not.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  const TileLayout layout;
  alignas(64) std::int8_t three[64], minus_five[64];
  _mm512_store_si512(three, _mm512_set1_epi8(3));
  _mm512_store_si512(minus_five, _mm512_set1_epi8(-5));
  asm volatile("ldtilecfg %0" : : "m"(layout), "r"(three), "r"(minus_five) : "memory");
  _tile_loadd(4, three, 0);
  _tile_loadd(5, minus_five, 0);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbusd(0, 4, 5);
    _tile_dpbusd(1, 4, 5);
    _tile_dpbusd(2, 4, 5);
    _tile_dpbusd(3, 4, 5);
  }
  alignas(64) std::int32_t sums[4][256];
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
  _tile_release();
  return sums[0][0] + sums[1][0] + sums[2][0] + sums[3][0];
}

}  // namespace

const LimitKernels& limit_kernels_avx512amx() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_avx512vnni();
    kernels.int8 = {int8_products, 4 * 16 * 16 * 64 * 2.0, "tdpbusd"};
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
