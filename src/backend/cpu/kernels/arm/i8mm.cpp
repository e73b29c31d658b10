// The dotprod kernels, but bytes are multiplied by the instructions of i8mm. smmla multiplies the
// codes of two outputs by the inputs of two tokens, eight columns at once. Fewer than four tokens
// use the dotprod kernels.
#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/arm/matmul_panel.h"
#include "backend/cpu/kernels/arm/quad_scores.h"
#include "backend/cpu/kernels/levels.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

// Converts sums of two tokens x two outputs (smmla's layout) to one token x four outputs (the usual
// layout), or back: swaps the upper half of c[m] with the lower half of c[m + 1].
template <int M, int R>
inline __attribute__((always_inline)) void exchange(int32x4_t (&c)[M][R]) {
#pragma GCC unroll 4
  for (int m = 0; m < M; m += 2) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const int64x2_t even = vreinterpretq_s64_s32(c[m][r]);
      const int64x2_t odd = vreinterpretq_s64_s32(c[m + 1][r]);
      c[m][r] = vreinterpretq_s32_s64(vzip1q_s64(even, odd));
      c[m + 1][r] = vreinterpretq_s32_s64(vzip2q_s64(even, odd));
    }
  }
}

// Inputs of two tokens; a register has eight columns.
struct InputPair {
  int8x16_t first, second;  // of sixteen columns
};

template <class C>
inline __attribute__((always_inline)) InputPair inputs_at(const std::uint8_t* x,
                                                          std::int64_t stride) {
  uint8x16_t even = vld1q_u8(x);
  uint8x16_t odd = vld1q_u8(x + stride);
  if constexpr (C::kSigned) {
    even = veorq_u8(even, vdupq_n_u8(128));
    odd = veorq_u8(odd, vdupq_n_u8(128));
  }
  const int64x2_t a = vreinterpretq_s64_u8(even), b = vreinterpretq_s64_u8(odd);
  return {vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))};
}

// Combine two quads of columns of four outputs into eight columns of the first or last two outputs.
inline __attribute__((always_inline)) int8x16_t low_outputs(int8x16_t quad, int8x16_t next) {
  return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(quad), vreinterpretq_s32_s8(next)));
}
inline __attribute__((always_inline)) int8x16_t high_outputs(int8x16_t quad, int8x16_t next) {
  return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(quad), vreinterpretq_s32_s8(next)));
}

struct PairStep {};

template <class C>
struct Columns<C, PairStep> {
  template <int M, int R>
  static inline __attribute__((always_inline)) void add(const IntPanel& panel, std::int64_t token,
                                                        std::int64_t output, std::int64_t first,
                                                        std::int64_t last, int32x4_t (&c)[M][R]) {
    const std::int64_t stride = panel.input_stride;
    exchange(c);
    for (std::int64_t k = first; k < last; k += 16) {
      const std::uint8_t* inputs = panel.inputs + token * stride + k;
      InputPair x[M / 2];
#pragma GCC unroll 4
      for (int p = 0; p < M / 2; ++p) x[p] = inputs_at<C>(inputs + 2 * p * stride, stride);
      const Planes planes = planes_at<C>(panel, k, output);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const int8x16_t q0 = codes_at<C, 0>(planes, r), q1 = codes_at<C, 1>(planes, r);
        const int8x16_t q2 = codes_at<C, 2>(planes, r), q3 = codes_at<C, 3>(planes, r);
#pragma GCC unroll 4
        for (int p = 0; p < M / 2; ++p) {
          int32x4_t& low = c[2 * p][r];
          int32x4_t& high = c[2 * p + 1][r];
          low = vmmlaq_s32(low, x[p].first, low_outputs(q0, q1));
          high = vmmlaq_s32(high, x[p].first, high_outputs(q0, q1));
          low = vmmlaq_s32(low, x[p].second, low_outputs(q2, q3));
          high = vmmlaq_s32(high, x[p].second, high_outputs(q2, q3));
        }
      }
    }
    exchange(c);
  }
};

// Tiles of eight tokens x 8 outputs, or four tokens x 16 outputs: sixteen accumulators of the 32
// registers. In the larger tile a quarter of the instructions reorder codes; in the smaller tile
// half as many instructions reorder as multiply.
template <Tile kEight, Tile kFour, auto kKernel>
void run_pairs(const IntPanel& panel) noexcept {
  std::int64_t token = 0;
  for (; token + 8 <= panel.tokens; token += 8) kEight(panel, token);
  for (; token + 4 <= panel.tokens; token += 4) kFour(panel, token);
  if (token == panel.tokens) return;
  IntPanel rest = panel;
  rest.tokens = panel.tokens - token;
  rest.inputs = panel.inputs + token * panel.input_stride;
  rest.token_scales = panel.token_scales + token * panel.token_scale_stride;
  if (panel.token_sums != nullptr) {
    rest.token_sums = panel.token_sums + token * panel.token_sum_stride;
  }
  rest.y = panel.y + token * panel.y_stride;
  (level_dotprod().matmul->*kKernel)(rest);
}

template <class C, auto kKernel>
constexpr auto kRows = run_pairs<row_tile<C, PairStep, 8, 2>, row_tile<C, PairStep, 4, 4>, kKernel>;
template <class C, auto kKernel>
constexpr auto kGroups =
    run_pairs<group_tile<C, PairStep, 8, 2>, group_tile<C, PairStep, 4, 4>, kKernel>;

struct UnsignedQuads {
  static int32x4_t add(int32x4_t sum, uint8x16_t codes, int8x16_t query) {
    return vusdotq_s32(sum, codes, query);
  }
  static int32x4_t total(int32x4_t sum, std::int32_t) { return sum; }
};

MatmulKernels matmuls() {
  using Kernels = MatmulKernels;
  MatmulKernels kernels = *level_dotprod().matmul;  // of floats and superblocks
  kernels.isa = Isa::i8mm;
  kernels.int8_rows = kRows<Codes<8, true>, &Kernels::int8_rows>;
  kernels.int8_groups = kGroups<Codes<8, true>, &Kernels::int8_groups>;
  kernels.uint8_rows = kRows<Codes<8, false>, &Kernels::uint8_rows>;
  kernels.uint8_groups = kGroups<Codes<8, false>, &Kernels::uint8_groups>;
  kernels.bits4 = kGroups<Codes<4, false>, &Kernels::bits4>;
  kernels.table4 = kGroups<Codes<4, false, true>, &Kernels::table4>;
  kernels.bits3 = kGroups<Codes<3, false>, &Kernels::bits3>;
  kernels.bits2 = kGroups<Codes<2, false>, &Kernels::bits2>;
  kernels.int_tile = "8x8";
  return kernels;
}

AttentionKernels with_quads() {
  AttentionKernels kernels = *level_neon().attention;
  kernels.kv[2].scores = quad_scores<UnsignedQuads>;
  return kernels;
}

}  // namespace

const KernelLevel& level_i8mm() {
  static const MatmulKernels kMatmuls = matmuls();
  static const AttentionKernels kAttention = with_quads();
  const KernelLevel& neon = level_neon();
  static const KernelLevel kLevel = {&kMatmuls, neon.rows, &kAttention, neon.packed, neon.delta};
  return kLevel;
}

}  // namespace leq::cpu
