// int8 and uint8 weights times int8 activations, if neither side has groups: one int32 sum for the
// whole row, kept in scratch between K tiles.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// Panels of up to so many columns are multiplied as a whole, one half after another, so that no sum
// is loaded back into a tile. Longer panels would be read from L2 too often, so that all tokens are
// multiplied by short K tiles, whose weights remain in L1.
constexpr std::int64_t kWholeColumns = 1024;
constexpr std::int64_t kFewHalves = 4;  // so few are memory-bound: short K tiles arrive sooner
std::int64_t k_tile_columns(std::int64_t columns, std::int64_t halves) {
  return columns <= kWholeColumns && halves > kFewHalves ? columns : kKTileColumns;
}

// A panel and a block of its tokens. Units are processed in halves: half 2 u + h has the 32 tokens
// of unit u and the 32 outputs that begin at 32 h.
template <bool kUnsigned>
struct Block {
  const IntPanel& panel;
  const TokenBlock& tokens;
  std::int32_t* const sums;  // [halves][kHalfNumbers]
  const FinishNumbers& numbers;
  std::int32_t* before;  // where the tiles' current sums will be stored
  FetchAhead ahead = {};

  // Finishes a half whose sums are in memory. The sums lack -128 * the weights' sum for signed
  // weights, whose inputs are q + 128, or -zero point * the inputs' sum for unsigned weights.
  void finish(std::int64_t half) const {
    const std::int32_t* const sum = sums + half * kHalfNumbers;
    const int output = static_cast<int>(half % 2 * kUnitOutputs);
    __m512i offset[2];
    for (int j = 0; j < 2; ++j) {
      offset[j] = kUnsigned ? zero_points(panel, 0, output + 16 * j)
                            : start_value(_mm512_loadu_si512(panel.row_sums + output + 16 * j));
    }
    finish_half(
        panel, numbers, tokens,
        half, [&](std::int64_t token, int j, std::int64_t at) __attribute__((always_inline)) {
          __m512i lacking = offset[j];
          if constexpr (kUnsigned) {
            const int inputs = panel.token_sums[token * panel.token_sum_stride];
            lacking = _mm512_mullo_epi32(lacking, _mm512_set1_epi32(-inputs));
          }
          return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(sum + at), lacking));
        });
  }

  // Adds columns [first, first + columns) to the sums of a half, with T tiles of tokens.
  template <int T>
  void add_k_tile(std::int64_t half, std::int64_t first, std::int64_t columns) {
    constexpr Signs kSigns = kUnsigned ? Signs::weight_unsigned : Signs::input_unsigned;
    const std::int64_t stride = panel.input_stride;
    const std::uint8_t* w = panel.codes + first * 64 + half % 2 * 128;
    const std::uint8_t* x0 = panel.inputs + first + tokens.first(half / 2, 0) * stride;
    const std::uint8_t* x1 = panel.inputs + first + tokens.first(half / 2, 1) * stride;
    std::int32_t* const now = sums + half * kHalfNumbers;
    ahead.step();
    load_tiles<T>(x0, x1, stride, w);
    if (first == 0) {
      store_and_begin<kSigns, T>(before, [](int) {});
    } else {
      store_and_continue<kSigns, T>(before, now);
    }
    before = now;
    for (std::int64_t k = 64; k < columns; k += 64) {
      x0 += 64, x1 += 64, w += 64 * 64;
      ahead.step();
      load_tiles<T>(x0, x1, stride, w);
      multiply_step<kSigns, T>();
    }
  }

  // Prefetches the following K tile: the next columns, or the first columns of the next panel. (128
  // KB ahead is faster for a matrix alone, but slower in a model.)
  FetchAhead fetch_next(std::int64_t first, std::int64_t columns, std::int64_t steps) const {
    const std::int64_t bytes = columns * 64;
    if (first + columns < panel.columns) {
      return {panel.codes + first * 64 + bytes, bytes, steps};
    }
    return {panel.next_codes, panel.next_bytes < bytes ? panel.next_bytes : bytes, steps};
  }

  template <int T>
  void run() {
    const std::int64_t columns = (panel.columns + 63) / 64 * 64;
    const std::int64_t halves = tokens.halves();
    const std::int64_t most = k_tile_columns(columns, halves);
    for (std::int64_t k = 0; k < columns; k += most) {
      const std::int64_t k_tile = columns - k < most ? columns - k : most;
      ahead = fetch_next(k, k_tile, halves * k_tile / 64);
      for (std::int64_t half = 0; half < halves; ++half) {
        add_k_tile<T>(half, k, k_tile);
        // The preceding half's sums have been stored; they are finished while the tiles multiply.
        if (k + k_tile == columns && half > 0) finish(half - 1);
      }
    }
    store_sums(before);
    finish(halves - 1);
  }
};

template <bool kUnsigned>
void run(const IntPanel& panel) {
  auto* const sums = reinterpret_cast<std::int32_t*>(panel.scratch);
  FinishNumbers numbers;
  read_finish_numbers(panel, numbers);
  const Tiles tiles(64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    // The first step stores undefined tiles to the block's own sums, which are overwritten later.
    Block<kUnsigned> work{panel, block, sums, numbers, sums};
    block.tiles() == 1 ? work.template run<1>() : work.template run<2>();
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
