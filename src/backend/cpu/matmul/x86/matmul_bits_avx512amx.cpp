// Group-scaled weights of fewer than 8 bits times int8 activations. A K tile of the panel is
// unpacked to signed bytes, code - zero point, which all tokens of a block share.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_codes_avx512.h"
#include "backend/cpu/matmul/x86/matmul_groups_avx512amx.h"

namespace leq::cpu {
namespace {

// The zero points of a group; each is in all four bytes of its output.
ByteZeros byte_zeros(const IntPanel& panel, std::int64_t group) {
  ByteZeros bytes;
  for (int j = 0; j < 4; ++j) {
    bytes.zeros[j] =
        _mm512_mullo_epi32(zero_points(panel, group, 16 * j), _mm512_set1_epi32(0x01010101));
  }
  return bytes;
}

template <class Bits>
void run(const IntPanel& panel) {
  std::uint8_t* const codes = reinterpret_cast<GroupScratch*>(panel.scratch)->unpacked;
  run_groups<Signs::none_unsigned>(
      panel, [&](std::int64_t first, std::int64_t columns, KTile& k_tile) {
        for (std::int64_t g = 0; g < k_tile.groups; ++g) {
          unpack<Bits>(panel, first + g * panel.group, panel.group,
                       byte_zeros(panel, k_tile.group + g), codes + g * panel.group * 64);
        }
        stored_for_tiles(codes);
        const Planes next = planes_at<Bits>(panel, first + columns);
        k_tile.codes = codes;
        k_tile.next = next.low;
        k_tile.next_bytes = columns * 8 * Bits::kLowBits;
      });
}

}  // namespace

void bits4_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? bits4_avx512vnni(panel) : run<Bits4>(panel);
}
void bits3_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? bits3_avx512vnni(panel) : run<Bits3>(panel);
}
void bits2_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? bits2_avx512vnni(panel) : run<Bits2>(panel);
}

}  // namespace leq::cpu
