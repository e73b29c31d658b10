// f32, f16 and bf16 weights times f32 activations: a chain of sixteen lanes for each output,
// several tokens and outputs at a time.
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

// Sixteen weights as f32; those outside the mask are 0 and not read.
inline __m512 load(const F32* weights) { return _mm512_loadu_ps(weights); }
inline __m512 load(const F32* weights, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, weights);
}
inline __m512 load(const F16* weights) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
}
inline __m512 load(const F16* weights, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, weights));
}
inline __m512 widened_bf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m512 load(const Bf16* weights) {
  return widened_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
}
inline __m512 load(const Bf16* weights, __mmask16 mask) {
  return widened_bf16(_mm256_maskz_loadu_epi16(mask, weights));
}

// Lanes +8, then +4, +2, +1.
inline float total(__m512 lanes) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// M tokens x N outputs, from `token` and `output` on.
template <class Weight, int M, int N>
void tile(const FloatBlock& block, std::int64_t token, std::int64_t output) {
  const std::int64_t w_stride = block.weight_stride;
  const std::int64_t x_stride = block.x_stride;
  const Weight* w = static_cast<const Weight*>(block.weights) + output * w_stride;
  const float* x = block.x + token * x_stride;
  __m512 c[M][N];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      c[m][n] =
          block.lanes == nullptr
              ? _mm512_setzero_ps()
              : _mm512_loadu_ps(block.lanes + ((token + m) * block.outputs + output + n) * 16);
    }
  }
  std::int64_t k = 0;
  for (; k + 16 <= block.columns; k += 16) {
    __m512 weights[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      weights[n] = load(w + n * w_stride + k);
      if constexpr (M == 1) {
        _mm_prefetch(reinterpret_cast<const char*>(w + n * w_stride + k) + 1024, _MM_HINT_T0);
      }
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const __m512 input = _mm512_loadu_ps(x + m * x_stride + k);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) c[m][n] = _mm512_fmadd_ps(weights[n], input, c[m][n]);
    }
  }
  if (k < block.columns) {
    const auto mask = static_cast<__mmask16>((1u << (block.columns - k)) - 1);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const __m512 input = _mm512_maskz_loadu_ps(mask, x + m * x_stride + k);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        c[m][n] = _mm512_fmadd_ps(load(w + n * w_stride + k, mask), input, c[m][n]);
      }
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      if (block.lanes != nullptr) {
        _mm512_storeu_ps(block.lanes + ((token + m) * block.outputs + output + n) * 16, c[m][n]);
      } else {
        const float sum = total(c[m][n]);
        block.y[(token + m) * block.y_stride + output + n] =
            block.bias != nullptr ? sum + block.bias[output + n] : sum;
      }
    }
  }
}

constexpr int kTokens = 6;
constexpr int kOutputs = 4;

using Tile = void (*)(const FloatBlock&, std::int64_t, std::int64_t);
template <class Weight>
constexpr Tile kTiles[kTokens][kOutputs] = {
    {tile<Weight, 1, 1>, tile<Weight, 1, 2>, tile<Weight, 1, 3>, tile<Weight, 1, 4>},
    {tile<Weight, 2, 1>, tile<Weight, 2, 2>, tile<Weight, 2, 3>, tile<Weight, 2, 4>},
    {tile<Weight, 3, 1>, tile<Weight, 3, 2>, tile<Weight, 3, 3>, tile<Weight, 3, 4>},
    {tile<Weight, 4, 1>, tile<Weight, 4, 2>, tile<Weight, 4, 3>, tile<Weight, 4, 4>},
    {tile<Weight, 5, 1>, tile<Weight, 5, 2>, tile<Weight, 5, 3>, tile<Weight, 5, 4>},
    {tile<Weight, 6, 1>, tile<Weight, 6, 2>, tile<Weight, 6, 3>, tile<Weight, 6, 4>}};

// A tile's inputs stay in the cache while the weights of the block pass by.
template <class Weight>
void run(const FloatBlock& block) {
  for (std::int64_t token = 0; token < block.tokens; token += kTokens) {
    const std::int64_t left = block.tokens - token;
    const std::int64_t m = left < kTokens ? left : kTokens;
    for (std::int64_t output = 0; output < block.outputs; output += kOutputs) {
      const std::int64_t rest = block.outputs - output;
      const std::int64_t n = rest < kOutputs ? rest : kOutputs;
      kTiles<Weight>[m - 1][n - 1](block, token, output);
    }
  }
}

}  // namespace

void f32_avx512(const FloatBlock& block) noexcept { run<F32>(block); }
void f16_avx512(const FloatBlock& block) noexcept { run<F16>(block); }
void bf16_avx512(const FloatBlock& block) noexcept { run<Bf16>(block); }

}  // namespace leq::cpu
