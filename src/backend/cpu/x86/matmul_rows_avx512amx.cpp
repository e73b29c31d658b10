// int8 and uint8 weights times int8 activations where neither side is grouped: one int32 sum for
// the whole row, which waits in scratch from one piece of the columns to the next.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// Adds columns [first, first + columns) to the sums of all units of a block.
template <Signs kSigns>
void add_piece(const IntPanel& panel, const TokenBlock& block, std::int64_t first,
               std::int64_t columns, std::int32_t* sums) {
  const std::int64_t stride = panel.input_stride;
  const std::uint8_t* codes = panel.codes + first * 64;
  FetchAhead ahead(codes + columns * 64, columns * 64, block.units() * 2 * columns / 64);
  for (std::int64_t unit = 0; unit < block.units(); ++unit) {
    const std::uint8_t* inputs = panel.inputs + first;
    for (int half = 0; half < 2; ++half, sums += kUnitNumbers) {
      const std::uint8_t* w = codes + half * 128;
      const std::uint8_t* x0 = inputs + block.first(unit, 0) * stride;
      const std::uint8_t* x1 = inputs + block.first(unit, 1) * stride;
      if (first == 0) {
        clear_sums();
      } else {
        load_sums(sums);
      }
      for (std::int64_t k = 0; k < columns; k += 64, x0 += 64, x1 += 64, w += 64 * 64) {
        load_tiles(x0, x1, stride, w);
        multiply_tiles<kSigns>();
        ahead.step();
      }
      store_sums(sums);
    }
  }
}

template <bool kUnsigned>
void finish_block(const IntPanel& panel, const TokenBlock& block, const std::int32_t* sums) {
  for (std::int64_t unit = 0; unit < block.units(); ++unit) {
    for (int output = 0; output < 64; output += kUnitOutputs) {
      for (int tile = 0; tile < 2; ++tile) {
        for (std::int64_t t = block.first(unit, tile), row = 0; row < kTileTokens; ++row, ++t) {
          for (int j = 0; j < kUnitOutputs; j += 16, sums += 16) {
            __m512i start;
            if constexpr (kUnsigned) {
              const int sum = panel.token_sums[t * panel.token_sum_stride];
              start =
                  _mm512_mullo_epi32(zero_points(panel, 0, output + j), _mm512_set1_epi32(-sum));
            } else {
              start = start_value(_mm512_loadu_si512(panel.row_sums + output + j));
            }
            const __m512i sum = _mm512_add_epi32(start, _mm512_load_si512(sums));
            finish(panel, t, output + j, _mm512_cvtepi32_ps(sum));
          }
        }
      }
    }
  }
}

template <bool kUnsigned>
void run(const IntPanel& panel) {
  constexpr Signs kSigns = kUnsigned ? Signs::weight_unsigned : Signs::input_unsigned;
  auto* const sums = reinterpret_cast<std::int32_t*>(panel.scratch);
  const Tiles tiles(64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    const std::int64_t end = (panel.columns + 63) / 64 * 64;
    for (std::int64_t k = 0; k < end; k += kPieceColumns) {
      add_piece<kSigns>(panel, block, k, end - k < kPieceColumns ? end - k : kPieceColumns, sums);
    }
    finish_block<kUnsigned>(panel, block, sums);
  });
}

}  // namespace

void int8_rows_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? int8_rows_avx512vnni(panel) : run<false>(panel);
}
void uint8_rows_avx512amx(const IntPanel& panel) noexcept {
  panel.tokens < kTileTokens ? uint8_rows_avx512vnni(panel) : run<true>(panel);
}

}  // namespace leq::cpu
