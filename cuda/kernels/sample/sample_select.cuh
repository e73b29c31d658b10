// How one block finds the key up to which the weights of a row's tokens add up to a goal: radix
// select, 11 bits a pass, by histograms of counts and of masses. Sums are integers: no order of
// threads changes them.
#pragma once

#include "cuda/words/float_math.cuh"
#include "cuda/words/reduce.cuh"
#include "cuda/kernels/sample/sample.h"

namespace leq::LEQ_GPU {

using SampleKey = unsigned long long;
inline constexpr SampleKey kLastKey = ~0ull;
inline constexpr int kFirstShift = 64 - kSampleDigitBits;

__device__ __forceinline__ float logit_of_key(SampleKey key) {
  return logit_of(static_cast<unsigned>(key >> 32));
}

// Sum of the values of all threads before this one, and of all.
struct Before {
  unsigned long long mine, total;
};
__device__ __forceinline__ Before block_before(unsigned long long value) {
  LEQ_SHARED(unsigned long long[32], parts);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  unsigned long long sum = value;
  for (unsigned step = 1; step < 32; step *= 2) {
    const unsigned long long other = __shfl_up_sync(kEveryLane, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) parts[warp] = sum;
  __syncthreads();
  Before before = {sum - value, 0};
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) before.mine += parts[w];
    before.total += parts[w];
  }
  __syncthreads();
  return before;
}

// Weights below this are left out of the list of candidates where no top-k makes one: a little less
// than min-p, since exp is not monotone in its last bit, so that what is left out lies after all
// tokens that pass.
__device__ __forceinline__ float least_weight(const SampleRule& rule) {
  return 0.999f * rule.min_p;
}

// A row's tokens that may be drawn, and what decides about them.
struct SampleRow {
  SampleRule rule;
  float largest;
  const SampleKey* list;  // [count] where the candidates fit, or else null
  unsigned count;
  const float* logits;  // [V]
  std::int64_t vocabulary;
  unsigned long long dropped;  // beside those of the list

  template <class Visit>
  __device__ __forceinline__ void each(Visit visit) const {
    if (list != nullptr) {
      for (unsigned i = threadIdx.x; i < count; i += blockDim.x) visit(list[i]);
      return;
    }
    for (std::int64_t id = threadIdx.x; id < vocabulary; id += blockDim.x) {
      const float logit = logits[id];
      if (logit > kNoLogit) visit(sample_key(order_of(logit), static_cast<unsigned>(id)));
    }
  }
  __device__ __forceinline__ bool passes_min_p(SampleKey key) const {
    return device_exp(logit_of_key(key) - largest) >= rule.min_p;
  }
};

// What is selected for: the k best, the prefix of top-p, the drawn token.
enum class SamplePhase : int { top_k, top_p, draw };

__device__ __forceinline__ unsigned long long weight_of(const SampleRow& row, SamplePhase phase,
                                                        SampleKey key) {
  if (phase == SamplePhase::top_k) return 1;
  const float distance = logit_of_key(key) - row.largest;
  return mass_of(
      device_exp(phase == SamplePhase::top_p ? distance : distance / row.rule.temperature));
}

__device__ __forceinline__ unsigned long long goal_of(const SampleRow& row, SamplePhase phase,
                                                      unsigned long long total) {
  if (phase == SamplePhase::top_k) return static_cast<unsigned>(row.rule.top_k);
  if (phase == SamplePhase::top_p) return top_p_goal(row.rule.top_p, total + row.dropped);
  return draw_goal(row.rule.random, total);
}

// Counts and 64-bit sums by digit, the sums in two words: shared memory adds 32 bits at a time.
struct SampleBins {
  unsigned counts[kSampleBins], low[kSampleBins], high[kSampleBins];

  __device__ __forceinline__ void clear() {
    for (unsigned i = threadIdx.x; i < kSampleBins; i += blockDim.x) {
      counts[i] = low[i] = high[i] = 0;
    }
    __syncthreads();
  }
  __device__ __forceinline__ void add(unsigned digit, unsigned long long weight) {
    atomicAdd(&counts[digit], 1u);
    const auto lower = static_cast<unsigned>(weight);
    const unsigned old = atomicAdd(&low[digit], lower);
    const unsigned upper = static_cast<unsigned>(weight >> 32) + (old + lower < old ? 1u : 0u);
    if (upper != 0) atomicAdd(&high[digit], upper);
  }
  __device__ __forceinline__ unsigned long long sum(unsigned digit) const {
    return static_cast<unsigned long long>(high[digit]) << 32 | low[digit];
  }
};

// Keys that agree with `key` from bit `known` up.
struct SampleRange {
  SampleKey key;
  int known;
  __device__ __forceinline__ bool holds(SampleKey other) const {
    return known == 64 || (key ^ other) >> known == 0;
  }
  __device__ __forceinline__ SampleKey last() const { return key | ((SampleKey{1} << known) - 1); }
};

__device__ __forceinline__ bool takes_part(const SampleRow& row, SamplePhase phase, SampleKey limit,
                                           SampleKey key) {
  return key <= limit && (phase != SamplePhase::draw || row.passes_min_p(key));
}

// Smallest range that was looked at and holds the first token, by ascending key among those up to
// `limit`, with which the weights reach the goal; all of its tokens but that one are counted out
// by then, or it is one key. known = 64 where they never reach it. All threads get it.
__device__ __forceinline__ SampleRange select_key(const SampleRow& row, SamplePhase phase,
                                                  SampleKey limit, SampleBins& bins) {
  struct Found {
    unsigned long long before;
    unsigned digit, count;
  };
  LEQ_SHARED(Found, found);
  constexpr unsigned kMask = kSampleBins - 1;
  const unsigned own = kSampleBins / blockDim.x, first = threadIdx.x * own;
  SampleRange range = {0, 64};
  unsigned long long goal = 0;
  for (int shift = kFirstShift;; shift = max(shift - kSampleDigitBits, 0)) {
    bins.clear();
    row.each([&](SampleKey key) {
      if (!range.holds(key) || !takes_part(row, phase, limit, key)) return;
      bins.add(static_cast<unsigned>(key >> shift) & kMask, weight_of(row, phase, key));
    });
    __syncthreads();
    unsigned long long mine = 0;
    for (unsigned digit = first; digit < first + own; ++digit) mine += bins.sum(digit);
    const Before before = block_before(mine);
    if (range.known == 64) {
      goal = goal_of(row, phase, before.total);
      if (goal > before.total) return range;
      if (goal == 0) goal = 1;
    }
    if (before.mine < goal && before.mine + mine >= goal) {
      unsigned long long sum = before.mine;
      unsigned digit = first;
      while (sum + bins.sum(digit) < goal) sum += bins.sum(digit++);
      found = {sum, digit, bins.counts[digit]};
    }
    __syncthreads();
    range = {range.key | SampleKey{found.digit} << shift, shift};
    goal -= found.before;
    const unsigned count = found.count;
    __syncthreads();  // before the next pass writes
    if (count == 1 || shift == 0) return range;
  }
}

}  // namespace leq::LEQ_GPU
