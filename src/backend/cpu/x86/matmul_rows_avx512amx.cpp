// int8 and uint8 weights times int8 activations where neither side is grouped: one int32 sum for
// the whole row, which waits in scratch from one piece of the columns to the next.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// Adds columns [first, first + columns) to the sums of all units of a block. `before` is where the
// sums belong that are in the tiles.
template <Signs kSigns>
void add_piece(const IntPanel& panel, const TokenBlock& block, std::int64_t first,
               std::int64_t columns, std::int32_t* sums, std::int32_t*& before) {
  const std::int64_t stride = panel.input_stride;
  const std::uint8_t* codes = panel.codes + first * 64;
  const std::uint8_t* inputs = panel.inputs + first;
  FetchAhead ahead(codes + columns * 64, columns * 64, block.units() * 2 * (columns / 64));
  for (std::int64_t unit = 0; unit < block.units(); ++unit) {
    for (int half = 0; half < 2; ++half, sums += kUnitNumbers) {
      const std::uint8_t* w = codes + half * 128;
      const std::uint8_t* x0 = inputs + block.first(unit, 0) * stride;
      const std::uint8_t* x1 = inputs + block.first(unit, 1) * stride;
      ahead.step();
      load_tiles(x0, x1, stride, w);
      if (first == 0) {
        store_and_begin<kSigns>(before);
      } else {
        store_and_continue<kSigns>(before, sums);
      }
      for (std::int64_t k = 64; k < columns; k += 64) {
        ahead.step();
        load_tiles(x0 + k, x1 + k, stride, w + k * 64);
        multiply_step<kSigns>();
      }
      before = sums;
    }
  }
}

// A finished sum of products and what it lacks: signed weights have inputs of q + 128, so -128 *
// the weights' sum; unsigned weights a zero point, times the inputs' sum.
template <bool kUnsigned>
inline __attribute__((always_inline)) __m512i whole_sum(const IntPanel& panel, std::int64_t token,
                                                        int output, const std::int32_t* sums) {
  __m512i offset;
  if constexpr (kUnsigned) {
    const int sum = panel.token_sums[token * panel.token_sum_stride];
    offset = _mm512_mullo_epi32(zero_points(panel, 0, output), _mm512_set1_epi32(-sum));
  } else {
    offset = start_value(_mm512_loadu_si512(panel.row_sums + output));
  }
  return _mm512_add_epi32(_mm512_load_si512(sums), offset);
}

template <bool kUnsigned>
void run(const IntPanel& panel) {
  constexpr Signs kSigns = kUnsigned ? Signs::weight_unsigned : Signs::input_unsigned;
  auto* const sums = reinterpret_cast<std::int32_t*>(panel.scratch);
  const Tiles tiles(64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    std::int32_t* before = sums;  // what the first step stores here is overwritten
    const std::int64_t end = (panel.columns + 63) / 64 * 64;
    for (std::int64_t k = 0; k < end; k += kPieceColumns) {
      add_piece<kSigns>(panel, block, k, end - k < kPieceColumns ? end - k : kPieceColumns, sums,
                        before);
    }
    store_sums(before);
    const std::int32_t* sum = sums;
    for_each_row(block, [&](std::int64_t token, int output) {
      finish(panel, token, output,
             _mm512_cvtepi32_ps(whole_sum<kUnsigned>(panel, token, output, sum)));
      sum += 16;
    });
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
