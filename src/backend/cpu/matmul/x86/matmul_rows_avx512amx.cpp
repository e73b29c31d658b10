// int8 and uint8 weights times int8 activations where neither side is grouped: one int32 sum for
// the whole row, which waits in scratch from one K tile of the columns to the next.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// So many columns of a panel pass by one half after another, so that no sum goes back into a tile.
// More would be read from the second cache too often: all tokens pass through short K tiles, whose
// weights the first cache keeps.
constexpr std::int64_t kWholeColumns = 1024;
constexpr std::int64_t kFewHalves = 4;  // these wait for memory, and short K tiles come sooner
std::int64_t piece_of(std::int64_t columns, std::int64_t halves) {
  return columns <= kWholeColumns && halves > kFewHalves ? columns : kKTileColumns;
}

// A panel and a block of its tokens. Units are done in halves: half 2 u + h are the 32 tokens of
// unit u and the outputs from 32 h on.
template <bool kUnsigned>
struct Block {
  const IntPanel& panel;
  const TokenBlock& tokens;
  std::int32_t* const sums;  // [halves][kHalfNumbers]
  const FinishNumbers& numbers;
  std::int32_t* before;  // where the sums belong that are in the tiles
  FetchAhead ahead = {};

  // A half whose sums are in memory. These lack, for signed weights, which have inputs of q + 128,
  // -128 * the weights' sum; for unsigned ones a zero point * the inputs' sum.
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

  // Adds columns [first, first + columns) to the sums of a half, T tiles of tokens at a time.
  template <int T>
  void add_piece(std::int64_t half, std::int64_t first, std::int64_t columns) {
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

  // What follows a K tile of the columns: the next K tile, or the next panel's first one. (128 KB
  // ahead is faster for a matrix alone, and slower in a model.)
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
    const std::int64_t most = piece_of(columns, halves);
    for (std::int64_t k = 0; k < columns; k += most) {
      const std::int64_t k_tile = columns - k < most ? columns - k : most;
      ahead = fetch_next(k, k_tile, halves * k_tile / 64);
      for (std::int64_t half = 0; half < halves; ++half) {
        add_piece<T>(half, k, k_tile);
        // The sums of the half before have left the tiles, which multiply while they are finished.
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
    // What the first step stores to the block's own sums is overwritten.
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
