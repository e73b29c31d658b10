// The kernels of Gated DeltaNet over registers of any width, in the order of portable.inc.
// Files for an instruction set include this and pass their registers as the argument Register.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace leq::cpu {
namespace {

constexpr int kSumLanes = 4;

// The registers of a row of a state: kCount full ones, or (Tail) one with the row's last columns.
template <class Register, int kCount>
struct Whole {
  using Floats = typename Register::Floats;
  static constexpr int kRegisters = kCount;
  Floats load(const float* from, int r) const {
    return Register::load(from + r * Register::kLanes);
  }
  void store(float* to, int r, Floats x) const { Register::store(to + r * Register::kLanes, x); }
};
template <class Register>
struct Tail {
  using Floats = typename Register::Floats;
  static constexpr int kRegisters = 1;
  typename Register::Mask mask;
  Floats load(const float* from, int) const { return Register::load(from, mask); }
  void store(float* to, int, Floats x) const { Register::store(to, x, mask); }
};

template <class Register, class Lanes>
struct Sums {
  using Floats = typename Register::Floats;
  Floats lane[kSumLanes][Lanes::kRegisters];

  Sums() {
#pragma GCC unroll 8
    for (auto& one : lane) {
#pragma GCC unroll 4
      for (Floats& sum : one) sum = Register::repeat(0.0f);
    }
  }
  Floats joined(int r) const {
    return Register::add(Register::add(lane[0][r], lane[1][r]),
                         Register::add(lane[2][r], lane[3][r]));
  }
};

// Calls step(i, lane of the sum) for all i: in groups of four, then for the remainder.
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

// Computes the sums S^T k of one token; `first` is the first column.
template <class Register, class Lanes>
__attribute__((always_inline)) inline void see(const DeltaBlock& block, const float* k,
                                               const float* from, int first, Lanes lanes,
                                               Sums<Register, Lanes>& seen) {
  const std::int64_t stride = block.columns;
  each_key(
      block.key_dim, [&](int i, int lane) __attribute__((always_inline)) {
        const auto key = Register::repeat(k[i]);
#pragma GCC unroll 4
        for (int r = 0; r < Lanes::kRegisters; ++r) {
          seen.lane[lane][r] =
              Register::fma(key, lanes.load(from + i * stride + first, r), seen.lane[lane][r]);
        }
      });
}

// Prefetches the cache line of register r of a row, once a line, into the L2 cache.
template <class Register>
__attribute__((always_inline)) inline void prefetch_line(const float* row, int r) {
  constexpr int kLine = 16;  // floats
  const int column = r * Register::kLanes;
  if (column % kLine == 0) __builtin_prefetch(row + column, 0, 2);
}

// Reads and writes the state once for a token: computes S and o and, if kNext, also S^T k of the
// next token, so that S is read only once per token.
template <class Register, bool kNext, class Lanes>
__attribute__((always_inline)) inline void recur_token(const DeltaBlock& block, std::int64_t token,
                                                       const float* from, int first, Lanes lanes,
                                                       Sums<Register, Lanes>& seen) {
  const float* k = block.key + token * block.key_dim;
  const float* q = block.query + token * block.key_dim;
  const float* then = k + block.key_dim;
  float* v = block.value + token * block.value_stride + first;
  const auto alpha = Register::repeat(block.alpha[token]);
  const auto beta = Register::repeat(block.beta[token]);
  typename Register::Floats u[Lanes::kRegisters];
#pragma GCC unroll 4
  for (int r = 0; r < Lanes::kRegisters; ++r) {
    u[r] = Register::mul(Register::fnma(alpha, seen.joined(r), lanes.load(v, r)), beta);
  }
  float* const to = block.to;
  const float* const fetch = token + 1 == block.tokens ? block.next_state : nullptr;
  const std::int64_t stride = block.columns;
  Sums<Register, Lanes> out, next_seen;
  each_key(
      block.key_dim, [&](int i, int lane) __attribute__((always_inline)) {
        const auto key = Register::repeat(k[i]), query = Register::repeat(q[i]);
        const std::int64_t at = i * stride + first;
#pragma GCC unroll 4
        for (int r = 0; r < Lanes::kRegisters; ++r) {
          if (!kNext && fetch != nullptr) prefetch_line<Register>(fetch + at, r);
          const auto kept = Register::mul(alpha, lanes.load(from + at, r));
          const auto next = Register::fma(key, u[r], kept);
          lanes.store(to + at, r, next);
          out.lane[lane][r] = Register::fma(query, next, out.lane[lane][r]);
          if constexpr (kNext) {
            next_seen.lane[lane][r] =
                Register::fma(Register::repeat(then[i]), next, next_seen.lane[lane][r]);
          }
        }
      });
#pragma GCC unroll 4
  for (int r = 0; r < Lanes::kRegisters; ++r) lanes.store(v, r, out.joined(r));
  if constexpr (kNext) seen = next_seen;
}

// Prefetches into the L2 cache.
inline void fetch_ahead(const DeltaBlock& block, std::int64_t token) {
  if (block.fetch == nullptr) return;
  const auto* row = reinterpret_cast<const char*>(block.fetch + token * block.fetch_stride);
  for (int at = 0; at < block.fetch_bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
}

// If there are many registers, which suffice for the sums of two tokens, a token's pass also
// computes S^T k of the next token.
template <class Register, class Lanes>
void recur_columns(const DeltaBlock& block, int first, Lanes lanes) {
  if constexpr (Register::kManyRegisters) {
    Sums<Register, Lanes> seen;
    see<Register>(block, block.key, block.from, first, lanes, seen);
    for (std::int64_t token = 0; token + 1 < block.tokens; ++token) {
      if (first == 0) fetch_ahead(block, token);
      const float* from = token == 0 ? block.from : block.to;
      recur_token<Register, true>(block, token, from, first, lanes, seen);
    }
    const std::int64_t last = block.tokens - 1;
    const float* from = last == 0 ? block.from : block.to;
    recur_token<Register, false>(block, last, from, first, lanes, seen);
  } else {
    for (std::int64_t token = 0; token < block.tokens; ++token) {
      if (first == 0) fetch_ahead(block, token);
      const float* from = token == 0 ? block.from : block.to;
      Sums<Register, Lanes> seen;
      see<Register>(block, block.key + token * block.key_dim, from, first, lanes, seen);
      recur_token<Register, false>(block, token, from, first, lanes, seen);
    }
  }
}

template <class Register>
void recur_with(const DeltaBlock& block) noexcept {
  constexpr int kLanes = Register::kLanes, kWide = 2 * kLanes;
  int first = 0;
  for (; first + kWide <= block.columns; first += kWide) {
    recur_columns<Register>(block, first, Whole<Register, 2>());
  }
  for (; first < block.columns; first += kLanes) {
    recur_columns<Register>(block, first,
                            Tail<Register>{Register::first_lanes(block.columns - first)});
  }
}

template <class Register>
void convolve_with(const float* const* x, const float* conv, std::int64_t stride, int taps,
                   bool activated, std::int64_t n, float* out) noexcept {
  constexpr int kLanes = Register::kLanes;
  const auto at = [=](std::int64_t k, auto lanes) {
    auto c = Register::mul(lanes.load(conv + k, 0), lanes.load(x[0] + k, 0));
    for (int j = 1; j < taps; ++j) {
      c = Register::fma(lanes.load(conv + j * stride + k, 0), lanes.load(x[j] + k, 0), c);
    }
    lanes.store(out + k, 0, activated ? Register::silu(c) : c);
  };
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) at(k, Whole<Register, 1>());
  if (k < n) at(k, Tail<Register>{Register::first_lanes(n - k)});
}

template <class Register>
constexpr DeltaKernels kDeltaKernels = {.recur = recur_with<Register>,
                                        .convolve = convolve_with<Register>};

}  // namespace
}  // namespace leq::cpu
