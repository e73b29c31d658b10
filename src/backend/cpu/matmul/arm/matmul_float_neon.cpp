// f32, f16 and bf16 weights times f32 activations: a chain of sixteen lanes (four registers) for
// each output, several tokens and outputs at a time.
#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/arm/lanes_neon.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"

namespace leq::cpu {
namespace {

struct F32 {
  float value;
};
struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

// Four weights as f32.
inline float32x4_t load(const F32* weights) {
  return vld1q_f32(reinterpret_cast<const float*>(weights));
}
inline float32x4_t load(const F16* weights) {
  const uint16x4_t bits = vld1_u16(reinterpret_cast<const std::uint16_t*>(weights));
  return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}
inline float32x4_t load(const Bf16* weights) {
  const uint16x4_t bits = vld1_u16(reinterpret_cast<const std::uint16_t*>(weights));
  return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

// The last columns of a row, filled up to sixteen with zeros.
template <class Number>
struct Tail {
  alignas(16) Number numbers[16] = {};
  Tail(const Number* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = from[i];
  }
};

// One step of a tile: sixteen columns.
template <class Weight, int M, int N>
inline __attribute__((always_inline)) void step(const Weight* const (&w)[N],
                                                const float* const (&x)[M], std::int64_t k,
                                                float32x4_t (&c)[M][N][4]) {
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    float32x4_t weights[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) weights[n] = load(w[n] + k + 4 * part);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
      const float32x4_t input = vld1q_f32(x[m] + k + 4 * part);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) c[m][n][part] = vfmaq_f32(c[m][n][part], weights[n], input);
    }
  }
}

// The columns from k on, fewer than sixteen. Chains by chain: this runs once for each row.
template <class Weight, int M, int N>
inline __attribute__((always_inline)) void last_step(const Weight* const (&w)[N],
                                                     const float* const (&x)[M], std::int64_t k,
                                                     std::int64_t count,
                                                     float32x4_t (&c)[M][N][4]) {
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) {
    const Tail<float> input(x[m] + k, count);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Tail<Weight> weights(w[n] + k, count);
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        c[m][n][part] = vfmaq_f32(c[m][n][part], load(weights.numbers + 4 * part),
                                  vld1q_f32(input.numbers + 4 * part));
      }
    }
  }
}

// The end of one chain: on to the next K tile's lanes, or a finished sum.
inline __attribute__((always_inline)) void finish(const FloatBlock& block, std::int64_t token,
                                                  std::int64_t output, const float32x4_t (&c)[4]) {
  if (block.lanes != nullptr) {
    float* lanes = block.lanes + (token * block.outputs + output) * 16;
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) vst1q_f32(lanes + 4 * part, c[part]);
    return;
  }
  const float sum = add_lanes(c);
  block.y[token * block.y_stride + output] = block.bias != nullptr ? sum + block.bias[output] : sum;
}

// M tokens x N outputs, from `token` and `output` on.
template <class Weight, int M, int N>
void tile(const FloatBlock& block, std::int64_t token, std::int64_t output) {
  const Weight* w[N];
  const float* x[M];
  for (int n = 0; n < N; ++n) {
    w[n] = static_cast<const Weight*>(block.weights) + (output + n) * block.weight_stride;
  }
  for (int m = 0; m < M; ++m) x[m] = block.x + (token + m) * block.x_stride;
  float32x4_t c[M][N][4];  // every loop over it is unrolled: it lives in registers
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const std::int64_t lane = ((token + m) * block.outputs + output + n) * 16;
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        c[m][n][part] =
            block.lanes == nullptr ? vdupq_n_f32(0.0f) : vld1q_f32(block.lanes + lane + 4 * part);
      }
    }
  }
  std::int64_t k = 0;
  for (; k + 16 <= block.columns; k += 16) step<Weight, M, N>(w, x, k, c);
  if (k < block.columns) last_step<Weight, M, N>(w, x, k, block.columns - k, c);
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) finish(block, token + m, output + n, c[m][n]);
  }
}

// 24 accumulators for several tokens, 16 for one, whose weights come from memory in four streams.
constexpr int kTokens = 3;
constexpr int kOutputs = 2;
constexpr int kOutputsAlone = 4;

template <class Weight>
void run(const FloatBlock& block) {
  using Tile = void (*)(const FloatBlock&, std::int64_t, std::int64_t);
  constexpr Tile kTiles[kTokens][kOutputsAlone] = {
      {tile<Weight, 1, 1>, tile<Weight, 1, 2>, tile<Weight, 1, 3>, tile<Weight, 1, 4>},
      {tile<Weight, 2, 1>, tile<Weight, 2, 2>, nullptr, nullptr},
      {tile<Weight, 3, 1>, tile<Weight, 3, 2>, nullptr, nullptr}};
  for (std::int64_t token = 0; token < block.tokens; token += kTokens) {
    const std::int64_t left = block.tokens - token;
    const std::int64_t m = left < kTokens ? left : kTokens;
    const std::int64_t most = m == 1 ? kOutputsAlone : kOutputs;
    for (std::int64_t output = 0; output < block.outputs; output += most) {
      const std::int64_t rest = block.outputs - output;
      const std::int64_t n = rest < most ? rest : most;
      kTiles[m - 1][n - 1](block, token, output);
    }
  }
}

}  // namespace

void f32_neon(const FloatBlock& block) noexcept { run<F32>(block); }
void f16_neon(const FloatBlock& block) noexcept { run<F16>(block); }
void bf16_neon(const FloatBlock& block) noexcept { run<Bf16>(block); }

}  // namespace leq::cpu
