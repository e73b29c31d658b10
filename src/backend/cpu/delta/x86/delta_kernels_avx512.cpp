// Gated DeltaNet with 512-bit registers.
#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/rows/x86/exp_avx512.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr int kSumLanes = 4;

// All ones in the lanes below n.
__mmask16 tail_mask(std::int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
}

// Registers of a row of a state: all of their columns there, or one of which the last are masked.
template <int kCount>
struct Whole {
  static constexpr int kRegisters = kCount;
  __m512 load(const float* from, int r) const { return _mm512_loadu_ps(from + r * kLanes); }
  void store(float* to, int r, __m512 x) const { _mm512_storeu_ps(to + r * kLanes, x); }
};
struct Tail {
  static constexpr int kRegisters = 1;
  __mmask16 mask;
  __m512 load(const float* from, int) const { return _mm512_maskz_loadu_ps(mask, from); }
  void store(float* to, int, __m512 x) const { _mm512_mask_storeu_ps(to, mask, x); }
};

template <class Lanes>
struct Sums {
  __m512 lane[kSumLanes][Lanes::kRegisters];

  Sums() {
#pragma GCC unroll 8
    for (auto& one : lane) {
#pragma GCC unroll 4
      for (__m512& sum : one) sum = _mm512_setzero_ps();
    }
  }
  __m512 joined(int r) const {
    return _mm512_add_ps(_mm512_add_ps(lane[0][r], lane[1][r]), _mm512_add_ps(lane[2][r], lane[3][r]));
  }
};

// step(i, its lane of the sums): four at a time, then what is left.
template <class Step>
void each_key(int key_dim, Step step) {
  int i = 0;
  for (; i + kSumLanes <= key_dim; i += kSumLanes) {
#pragma GCC unroll 4
    for (int lane = 0; lane < kSumLanes; ++lane) step(i + lane, lane);
  }
#pragma GCC unroll 4
  for (int lane = 0; lane < kSumLanes; ++lane) {
    if (i + lane < key_dim) step(i + lane, lane);
  }
}

// S^T k of one token; `first` is the first column.
template <class Lanes>
void see(const DeltaBlock& block, const float* k, const float* from, int first, Lanes lanes,
         Sums<Lanes>& seen) {
  each_key(block.key_dim, [&](int i, int lane) __attribute__((always_inline)) {
    const __m512 key = _mm512_set1_ps(k[i]);
#pragma GCC unroll 4
    for (int r = 0; r < Lanes::kRegisters; ++r) {
      seen.lane[lane][r] = _mm512_fmadd_ps(
          key, lanes.load(from + std::int64_t{i} * block.columns + first, r), seen.lane[lane][r]);
    }
  });
}

// One pass over the state for a token: S and o, and where another one follows its S^T k, so that S is
// read once for each token.
template <bool kNext, class Lanes>
void recur_token(const DeltaBlock& block, std::int64_t token, const float* from, int first,
                 Lanes lanes, Sums<Lanes>& seen) {
  const float* k = block.key + token * block.key_dim;
  const float* q = block.query + token * block.key_dim;
  const float* then = k + block.key_dim;
  float* v = block.value + token * block.value_stride + first;
  const __m512 alpha = _mm512_set1_ps(block.alpha[token]);
  const __m512 beta = _mm512_set1_ps(block.beta[token]);
  __m512 u[Lanes::kRegisters];
#pragma GCC unroll 4
  for (int r = 0; r < Lanes::kRegisters; ++r) {
    u[r] = _mm512_mul_ps(_mm512_fnmadd_ps(alpha, seen.joined(r), lanes.load(v, r)), beta);
  }
  Sums<Lanes> out, next_seen;
  each_key(block.key_dim, [&](int i, int lane) __attribute__((always_inline)) {
    const __m512 key = _mm512_set1_ps(k[i]), query = _mm512_set1_ps(q[i]);
    const std::int64_t at = std::int64_t{i} * block.columns + first;
#pragma GCC unroll 4
    for (int r = 0; r < Lanes::kRegisters; ++r) {
      const __m512 kept = _mm512_mul_ps(alpha, lanes.load(from + at, r));
      const __m512 next = _mm512_fmadd_ps(key, u[r], kept);
      lanes.store(block.to + at, r, next);
      out.lane[lane][r] = _mm512_fmadd_ps(query, next, out.lane[lane][r]);
      if constexpr (kNext) {
        next_seen.lane[lane][r] =
            _mm512_fmadd_ps(_mm512_set1_ps(then[i]), next, next_seen.lane[lane][r]);
      }
    }
  });
#pragma GCC unroll 4
  for (int r = 0; r < Lanes::kRegisters; ++r) lanes.store(v, r, out.joined(r));
  if constexpr (kNext) seen = next_seen;
}

// Into the second cache.
void fetch_ahead(const DeltaBlock& block, std::int64_t token) {
  if (block.fetch == nullptr) return;
  const auto* row = reinterpret_cast<const char*>(block.fetch + token * block.fetch_stride);
  for (int at = 0; at < block.fetch_bytes; at += 64) _mm_prefetch(row + at, _MM_HINT_T1);
}

template <class Lanes>
void recur_columns(const DeltaBlock& block, int first, Lanes lanes) {
  Sums<Lanes> seen;
  see(block, block.key, block.from, first, lanes, seen);
  for (std::int64_t token = 0; token + 1 < block.tokens; ++token) {
    if (first == 0) fetch_ahead(block, token);
    recur_token<true>(block, token, token == 0 ? block.from : block.to, first, lanes, seen);
  }
  const std::int64_t last = block.tokens - 1;
  recur_token<false>(block, last, last == 0 ? block.from : block.to, first, lanes, seen);
}

void recur(const DeltaBlock& block) noexcept {
  constexpr int kWide = 2 * static_cast<int>(kLanes);
  int first = 0;
  for (; first + kWide <= block.columns; first += kWide) {
    recur_columns(block, first, Whole<2>());
  }
  for (; first < block.columns; first += static_cast<int>(kLanes)) {
    recur_columns(block, first, Tail{tail_mask(block.columns - first)});
  }
}

// c / (1 + exp(-c))
__m512 silu_of(__m512 c) {
  const __m512 negative = _mm512_xor_ps(c, _mm512_set1_ps(-0.0f));
  return _mm512_div_ps(c, _mm512_add_ps(_mm512_set1_ps(1.0f), exp_lanes(negative)));
}

void convolve(const float* const* x, const float* conv, std::int64_t stride, int taps,
              std::int64_t n, float* out) noexcept {
  const auto at = [=](std::int64_t k, auto lanes) {
    __m512 c = _mm512_mul_ps(lanes.load(conv + k, 0), lanes.load(x[0] + k, 0));
    for (int j = 1; j < taps; ++j) {
      c = _mm512_fmadd_ps(lanes.load(conv + j * stride + k, 0), lanes.load(x[j] + k, 0), c);
    }
    lanes.store(out + k, 0, silu_of(c));
  };
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) at(k, Whole<1>());
  if (k < n) at(k, Tail{tail_mask(n - k)});
}

constexpr DeltaKernels kKernels = {.recur = recur, .convolve = convolve};

}  // namespace

const DeltaKernels& delta_kernels_avx512() { return kKernels; }

}  // namespace leq::cpu
