// Gated DeltaNet with 256-bit registers.
#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/rows/x86/exp_avx2.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr int kSumLanes = 4;

// All ones in the lanes below n.
__m256i tail_mask(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n < kLanes ? n : kLanes)), lane);
}

// Registers of a row of a state: all of their columns there, or one of which the last are masked.
template <int kCount>
struct Whole {
  static constexpr int kRegisters = kCount;
  __m256 load(const float* from, int r) const { return _mm256_loadu_ps(from + r * kLanes); }
  void store(float* to, int r, __m256 x) const { _mm256_storeu_ps(to + r * kLanes, x); }
};
struct Tail {
  static constexpr int kRegisters = 1;
  __m256i mask;
  __m256 load(const float* from, int) const { return _mm256_maskload_ps(from, mask); }
  void store(float* to, int, __m256 x) const { _mm256_maskstore_ps(to, mask, x); }
};

template <class Lanes>
struct Sums {
  __m256 lane[kSumLanes][Lanes::kRegisters];

  Sums() {
#pragma GCC unroll 8
    for (auto& one : lane) {
#pragma GCC unroll 4
      for (__m256& sum : one) sum = _mm256_setzero_ps();
    }
  }
  __m256 joined(int r) const {
    return _mm256_add_ps(_mm256_add_ps(lane[0][r], lane[1][r]), _mm256_add_ps(lane[2][r], lane[3][r]));
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

// One token; `first` is the first column.
template <class Lanes>
void recur_token(const DeltaBlock& block, std::int64_t token, const float* from, int first,
                 Lanes lanes) {
  const float* k = block.key + token * block.key_dim;
  const float* q = block.query + token * block.key_dim;
  float* v = block.value + token * block.value_stride + first;
  const __m256 alpha = _mm256_set1_ps(block.alpha[token]);
  const __m256 beta = _mm256_set1_ps(block.beta[token]);
  const std::int64_t stride = block.columns;
  Sums<Lanes> seen, out;
  each_key(block.key_dim, [&](int i, int lane) __attribute__((always_inline)) {
    const __m256 key = _mm256_set1_ps(k[i]);
#pragma GCC unroll 4
    for (int r = 0; r < Lanes::kRegisters; ++r) {
      seen.lane[lane][r] =
          _mm256_fmadd_ps(key, lanes.load(from + i * stride + first, r), seen.lane[lane][r]);
    }
  });
  __m256 u[Lanes::kRegisters];
#pragma GCC unroll 4
  for (int r = 0; r < Lanes::kRegisters; ++r) {
    u[r] = _mm256_mul_ps(_mm256_fnmadd_ps(alpha, seen.joined(r), lanes.load(v, r)), beta);
  }
  each_key(block.key_dim, [&](int i, int lane) __attribute__((always_inline)) {
    const __m256 key = _mm256_set1_ps(k[i]), query = _mm256_set1_ps(q[i]);
#pragma GCC unroll 4
    for (int r = 0; r < Lanes::kRegisters; ++r) {
      const __m256 kept = _mm256_mul_ps(alpha, lanes.load(from + i * stride + first, r));
      const __m256 next = _mm256_fmadd_ps(key, u[r], kept);
      lanes.store(block.to + i * stride + first, r, next);
      out.lane[lane][r] = _mm256_fmadd_ps(query, next, out.lane[lane][r]);
    }
  });
#pragma GCC unroll 4
  for (int r = 0; r < Lanes::kRegisters; ++r) lanes.store(v, r, out.joined(r));
}

// Into the second cache.
void fetch_ahead(const DeltaBlock& block, std::int64_t token) {
  if (block.fetch == nullptr) return;
  const auto* row = reinterpret_cast<const char*>(block.fetch + token * block.fetch_stride);
  for (int at = 0; at < block.fetch_bytes; at += 64) _mm_prefetch(row + at, _MM_HINT_T1);
}

template <class Lanes>
void recur_columns(const DeltaBlock& block, int first, Lanes lanes) {
  for (std::int64_t token = 0; token < block.tokens; ++token) {
    if (first == 0) fetch_ahead(block, token);
    recur_token(block, token, token == 0 ? block.from : block.to, first, lanes);
  }
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
__m256 silu_of(__m256 c) {
  const __m256 negative = _mm256_xor_ps(c, _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(c, _mm256_add_ps(_mm256_set1_ps(1.0f), exp_lanes(negative)));
}

void convolve(const float* const* x, const float* conv, std::int64_t stride, int taps,
              std::int64_t n, float* out) noexcept {
  const auto at = [=](std::int64_t k, auto lanes) {
    __m256 c = _mm256_mul_ps(lanes.load(conv + k, 0), lanes.load(x[0] + k, 0));
    for (int j = 1; j < taps; ++j) {
      c = _mm256_fmadd_ps(lanes.load(conv + j * stride + k, 0), lanes.load(x[j] + k, 0), c);
    }
    lanes.store(out + k, 0, silu_of(c));
  };
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) at(k, Whole<1>());
  if (k < n) at(k, Tail{tail_mask(n - k)});
}

constexpr DeltaKernels kKernels = {.recur = recur, .convolve = convolve};

}  // namespace

const DeltaKernels& delta_kernels_avx2() { return kKernels; }

}  // namespace leq::cpu
