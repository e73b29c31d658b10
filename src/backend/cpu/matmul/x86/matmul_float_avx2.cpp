// f32, f16 and bf16 weights times f32 activations: a chain of sixteen lanes (two registers) for
// each output, several tokens and outputs at a time.
#include <immintrin.h>

#include <cstdint>

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

// Eight weights as f32.
inline __m256 load(const F32* weights) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(weights));
}
inline __m256 load(const F16* weights) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
}
inline __m256 load(const Bf16* weights) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Lanes +8, then +4, +2, +1.
inline float total(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The last columns of a row, filled up to sixteen with zeros.
template <class Number>
struct Tail {
  alignas(32) Number numbers[16] = {};
  Tail(const Number* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = from[i];
  }
};

// One step of a tile: sixteen columns.
template <class Weight, int M, int N>
inline __attribute__((always_inline)) void step(const Weight* const (&w)[N],
                                                const float* const (&x)[M], std::int64_t k,
                                                __m256 (&c)[M][N][2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256 weights[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) weights[n] = load(w[n] + k + 8 * half);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
      const __m256 input = _mm256_loadu_ps(x[m] + k + 8 * half);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        c[m][n][half] = _mm256_fmadd_ps(weights[n], input, c[m][n][half]);
      }
    }
  }
}

// The columns from k on, fewer than sixteen. Chains by chain: this runs once for each row.
template <class Weight, int M, int N>
inline void last_step(const Weight* const (&w)[N], const float* const (&x)[M], std::int64_t k,
                      std::int64_t count, __m256 (&c)[M][N][2]) {
  for (int m = 0; m < M; ++m) {
    const Tail<float> input(x[m] + k, count);
    for (int n = 0; n < N; ++n) {
      const Tail<Weight> weights(w[n] + k, count);
      for (int half = 0; half < 2; ++half) {
        c[m][n][half] = _mm256_fmadd_ps(load(weights.numbers + 8 * half),
                                        _mm256_load_ps(input.numbers + 8 * half), c[m][n][half]);
      }
    }
  }
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
  __m256 c[M][N][2];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      const std::int64_t lane = ((token + m) * block.outputs + output + n) * 16;
      for (int half = 0; half < 2; ++half) {
        c[m][n][half] = block.lanes == nullptr ? _mm256_setzero_ps()
                                               : _mm256_loadu_ps(block.lanes + lane + 8 * half);
      }
    }
  }
  std::int64_t k = 0;
  for (; k + 16 <= block.columns; k += 16) step<Weight, M, N>(w, x, k, c);
  if (k < block.columns) last_step<Weight, M, N>(w, x, k, block.columns - k, c);
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      if (block.lanes != nullptr) {
        float* lanes = block.lanes + ((token + m) * block.outputs + output + n) * 16;
        for (int half = 0; half < 2; ++half) _mm256_storeu_ps(lanes + 8 * half, c[m][n][half]);
      } else {
        const float sum = total(c[m][n][0], c[m][n][1]);
        block.y[(token + m) * block.y_stride + output + n] =
            block.bias != nullptr ? sum + block.bias[output + n] : sum;
      }
    }
  }
}

// 12 accumulators for several tokens, 8 for one, whose weights come from memory in four streams.
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

void f32_avx2(const FloatBlock& block) noexcept { run<F32>(block); }
void f16_avx2(const FloatBlock& block) noexcept { run<F16>(block); }
void bf16_avx2(const FloatBlock& block) noexcept { run<Bf16>(block); }

}  // namespace leq::cpu
