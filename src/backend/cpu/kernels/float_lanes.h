// f32, f16 and bf16 weights times f32 activations, one body for all instruction sets: a chain of
// sixteen lanes for each output, several tokens and outputs at a time. L has a set's registers
// (lanes.h) and:
//   kTokens, kOutputs      size of a tile; kOutputsAlone: outputs of a tile of one token
//   kFetch                 prefetch distance in bytes for one token's weights; 0: none
// Each file has its own copy, in an unnamed namespace.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/lanes.h"

namespace leq::cpu {
namespace {

template <class L>
constexpr std::int64_t kWidth = 16 / L::kParts;
template <class L>
using Chain = typename L::Floats[L::kParts];

// The last columns of a row, padded to sixteen with zeros.
template <class Number>
struct LastColumns {
  alignas(64) Number numbers[16] = {};
  LastColumns(const Number* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = from[i];
  }
};

// Adds sixteen columns to the chains of a tile.
template <class L, class Weight, int M, int N>
inline __attribute__((always_inline)) void step(const Weight* const (&w)[N],
                                                const float* const (&x)[M], std::int64_t k,
                                                Chain<L> (&c)[M][N]) {
#pragma GCC unroll 4
  for (int part = 0; part < L::kParts; ++part) {
    typename L::Floats weights[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Weight* at = w[n] + k + kWidth<L> * part;
      weights[n] = L::load(at);
      if constexpr (M == 1 && L::kFetch > 0) {
        __builtin_prefetch(reinterpret_cast<const char*>(at) + L::kFetch);
      }
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const typename L::Floats input = L::load(x[m] + k + kWidth<L> * part);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) c[m][n][part] = L::fma(weights[n], input, c[m][n][part]);
    }
  }
}

// Adds the last columns, fewer than sixteen, from k on. Not unrolled, because it runs once per row.
template <class L, class Weight, int M, int N>
inline __attribute__((always_inline)) void last_step(const Weight* const (&w)[N],
                                                     const float* const (&x)[M], std::int64_t k,
                                                     std::int64_t count, Chain<L> (&c)[M][N]) {
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
    const LastColumns<float> input(x[m] + k, count);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const LastColumns<Weight> weights(w[n] + k, count);
#pragma GCC unroll 4
      for (int part = 0; part < L::kParts; ++part) {
        c[m][n][part] = L::fma(L::load(weights.numbers + kWidth<L> * part),
                               L::load(input.numbers + kWidth<L> * part), c[m][n][part]);
      }
    }
  }
}

// Ends a chain: stores its lanes for the next K tile, or its sum if it is complete.
template <class L>
inline __attribute__((always_inline)) void finish(const FloatBlock& block, std::int64_t token,
                                                  std::int64_t output, const Chain<L>& c) {
  if (block.lanes != nullptr) {
    float* lanes = block.lanes + (token * block.outputs + output) * 16;
#pragma GCC unroll 4
    for (int part = 0; part < L::kParts; ++part) L::store(lanes + kWidth<L> * part, c[part]);
    return;
  }
  const float sum = L::total(c);
  block.y[token * block.y_stride + output] = block.bias != nullptr ? sum + block.bias[output] : sum;
}

// Computes a tile of M tokens x N outputs, beginning at `token` and `output`.
template <class L, class Weight, int M, int N>
void tile(const FloatBlock& block, std::int64_t token, std::int64_t output) {
  const Weight* w[N];
  const float* x[M];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    w[n] = static_cast<const Weight*>(block.weights) + (output + n) * block.weight_stride;
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) x[m] = block.x + (token + m) * block.x_stride;
  Chain<L> c[M][N];  // stays in registers, because all loops over it are unrolled
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const std::int64_t lane = ((token + m) * block.outputs + output + n) * 16;
#pragma GCC unroll 4
      for (int part = 0; part < L::kParts; ++part) {
        c[m][n][part] = block.lanes == nullptr ? typename L::Floats{}
                                               : L::load(block.lanes + lane + kWidth<L> * part);
      }
    }
  }
  std::int64_t k = 0;
  for (; k + 16 <= block.columns; k += 16) step<L, Weight, M, N>(w, x, k, c);
  if (k < block.columns) last_step<L, Weight, M, N>(w, x, k, block.columns - k, c);
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) finish<L>(block, token + m, output + n, c[m][n]);
  }
}

using FloatTile = void (*)(const FloatBlock&, std::int64_t, std::int64_t);

// The tiles of M tokens, indexed by their number of outputs minus one.
template <class L, class Weight, int M, int... N>
constexpr auto tiles_of(std::integer_sequence<int, N...>) {
  return std::array{FloatTile{tile<L, Weight, M, N + 1>}...};
}

// Runs M tokens from `token` on. Their inputs remain in the cache for all weights of the block.
template <class L, class Weight, int M>
void run_tokens(const FloatBlock& block, std::int64_t token) {
  constexpr int kMost = M == 1 ? L::kOutputsAlone : L::kOutputs;
  static constexpr auto kTiles = tiles_of<L, Weight, M>(std::make_integer_sequence<int, kMost>());
  for (std::int64_t output = 0; output < block.outputs; output += kMost) {
    const std::int64_t rest = block.outputs - output;
    kTiles[static_cast<std::size_t>(rest < kMost ? rest : kMost) - 1](block, token, output);
  }
}

template <class L, class Weight, int M = L::kTokens>
void run_floats(const FloatBlock& block, std::int64_t token = 0) {
  for (; token + M <= block.tokens; token += M) run_tokens<L, Weight, M>(block, token);
  if constexpr (M > 1) {
    if (token < block.tokens) run_floats<L, Weight, M - 1>(block, token);
  }
}

template <class L, class Weight>
void multiply_floats(const FloatBlock& block) noexcept {
  run_floats<L, Weight>(block);
}

}  // namespace
}  // namespace leq::cpu
