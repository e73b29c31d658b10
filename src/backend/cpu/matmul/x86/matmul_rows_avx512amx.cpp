// int8 and uint8 weights times int8 activations where neither side is grouped: one int32 sum for
// the whole row, which waits in scratch from one piece of the columns to the next.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx512amx.h"

namespace leq::cpu {
namespace {

// A panel and a block of its tokens. Units are done in halves: half 2 u + h are the 32 tokens of
// unit u and the outputs from 32 h on.
template <bool kUnsigned>
struct Block {
  const IntPanel& panel;
  const TokenBlock& tokens;
  std::int32_t* const sums;  // [halves][kHalfNumbers]
  const FinishNumbers& numbers;
  std::int32_t* before;  // where the sums belong that are in the tiles

  // Finishes rows of a half whose sums are in memory. They lack, for signed weights, which have
  // inputs of q + 128, -128 * the weights' sum; for unsigned ones a zero point * the inputs' sum.
  inline __attribute__((always_inline)) void finish(std::int64_t half, std::int64_t row,
                                                    std::int64_t count) const {
    const std::int32_t* const sum = sums + half * kHalfNumbers;
    const int output = static_cast<int>(half % 2 * kUnitOutputs);
    __m512i offset[2];
    for (int j = 0; j < 2; ++j) {
      offset[j] = kUnsigned ? zero_points(panel, 0, output + 16 * j)
                            : start_value(_mm512_loadu_si512(panel.row_sums + output + 16 * j));
    }
    finish_rows(panel, numbers, tokens, half, row, count,
                [&](std::int64_t token, int j, std::int64_t at) {
                  __m512i lacking = offset[j];
                  if constexpr (kUnsigned) {
                    const int inputs = panel.token_sums[token * panel.token_sum_stride];
                    lacking = _mm512_mullo_epi32(lacking, _mm512_set1_epi32(-inputs));
                  }
                  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(sum + at), lacking));
                });
  }

  // Adds columns [first, first + columns) to the sums of all halves, T tiles of tokens at a time.
  // Where they are the last columns, each step finishes a share of the half before the last one,
  // while the tiles multiply.
  template <bool kLast, int T>
  void add_piece(std::int64_t first, std::int64_t columns) {
    constexpr Signs kSigns = kUnsigned ? Signs::weight_unsigned : Signs::input_unsigned;
    const std::int64_t stride = panel.input_stride;
    const std::uint8_t* codes = panel.codes + first * 64;
    const std::uint8_t* inputs = panel.inputs + first;
    const std::int64_t steps = columns / 64;
    const std::int64_t share = (kUnitTokens + steps - 1) / steps;
    FetchAhead ahead(codes + columns * 64, columns * 64, tokens.halves() * steps);
    for (std::int64_t half = 0; half < tokens.halves(); ++half) {
      const std::uint8_t* w = codes + half % 2 * 128;
      const std::uint8_t* x0 = inputs + tokens.first(half / 2, 0) * stride;
      const std::uint8_t* x1 = inputs + tokens.first(half / 2, 1) * stride;
      std::int32_t* const now = sums + half * kHalfNumbers;
      for (std::int64_t step = 0; step < steps; ++step) {
        ahead.step();
        load_tiles<T>(x0, x1, stride, w);
        x0 += 64, x1 += 64, w += 64 * 64;
        if (step > 0) {
          multiply_step<kSigns, T>();
        } else if (first == 0) {
          store_and_begin<kSigns, T>(before, [](int) {});
        } else {
          store_and_continue<kSigns, T>(before, now);
        }
        if constexpr (kLast) {
          fetch_result_rows(panel, tokens, half, step * share, share);
          if (half >= 2) finish(half - 2, step * share, share);
        }
      }
      before = now;
    }
  }

  template <int T>
  void run() {
    const std::int64_t end = (panel.columns + 63) / 64 * 64;
    std::int64_t k = 0;
    for (; k + kPieceColumns < end; k += kPieceColumns) add_piece<false, T>(k, kPieceColumns);
    add_piece<true, T>(k, end - k);
    store_sums(before);
    finish(tokens.halves() - 2, 0, kUnitTokens);
    finish(tokens.halves() - 1, 0, kUnitTokens);
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
