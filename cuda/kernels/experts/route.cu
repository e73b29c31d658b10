// The router: the linear by the blocks of float_rows, of which the last to finish some tokens
// chooses their experts, one warp per token.
#include <cmath>

#include "base/error.h"
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/last_block.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/matmul/float_rows.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {
namespace {

// Computes p = softmax(p); every lane adds the sum in ascending order.
__device__ void softmax(float* p, int experts, int lane) {
  float largest = -INFINITY;
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, p[e]);
  largest = warp_max(largest);
  __syncwarp();
  for (int e = lane; e < experts; e += 32) p[e] = device_exp(p[e] - largest);
  __syncwarp();
  float sum = 0;
#pragma unroll 16
  for (int e = 0; e < experts; ++e) sum += p[e];
  __syncwarp();
  for (int e = lane; e < experts; e += 32) p[e] = p[e] / sum;
  __syncwarp();
}

// Returns a number that is ordered as x, which is not -0.
__device__ __forceinline__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The best expert of a lane.
struct Candidate {
  unsigned score = 0, expert = kMaxExperts;
};

// Returns the best expert 32 i + lane of those whose bit i of `taken` is 0.
__device__ Candidate best_of(const float* score, int experts, unsigned taken, int lane) {
  Candidate best;
  for (int e = lane; e < experts; e += 32) {
    const unsigned one = ordered(score[e]);
    const bool free = (taken >> e / 32 & 1u) == 0;
    if (free && (one > best.score || best.expert == kMaxExperts)) {
      best = {one, static_cast<unsigned>(e)};
    }
  }
  return best;
}

// Selects the k largest; bit i of a lane's result is set if expert 32 i + lane is selected.
__device__ unsigned choose(const float* score, int experts, int active, int lane) {
  unsigned taken = 0;
  Candidate best = best_of(score, experts, taken, lane);
  for (int round = 0; round < active; ++round) {
    const unsigned largest = __reduce_max_sync(kEveryLane, best.score);
    const bool equal = best.score == largest;
    const unsigned chosen = __reduce_min_sync(kEveryLane, equal ? best.expert : kMaxExperts);
    if (best.expert != chosen) continue;
    taken |= 1u << chosen / 32;
    best = best_of(score, experts, taken, lane);
  }
  return taken;
}

// Chooses the experts of a token. p is shared memory of a warp: p [E], then the p of the k chosen
// experts, and with a bias scores [E].
__device__ void route_row(const RoutedLinear& a, std::int64_t token, float* p, int lane) {
  const int active = a.active;
  float* const chosen = p + a.experts;
  float* const row = a.matmul.out.values + token * a.matmul.out.stride;
  auto* const ids = reinterpret_cast<std::int32_t*>(row);
  float* const weights = row + active;
  const float shared = a.has_shared ? read_fresh(row + a.experts) : 0.0f;
  unsigned largest = magnitude_bits(shared);
  constexpr int kLoads = 8;  // in flight
  for (int first = lane; first < a.experts; first += 32 * kLoads) {
    float logits[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      logits[i] = first + 32 * i < a.experts ? read_fresh(row + first + 32 * i) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + 32 * i < a.experts) p[first + 32 * i] = logits[i];
      largest = max(largest, magnitude_bits(logits[i]));
    }
  }
  __syncwarp();
  if (warp_max(largest) >= 0x7f800000u) {
    if (lane == 0) report_row(a.fault, token);
    // Even for a bad row, the next kernels need valid expert numbers.
    for (int i = lane; i < active; i += 32) ids[i] = i;
    return;
  }
  if (a.sigmoid) {
    for (int e = lane; e < a.experts; e += 32) p[e] = 1.0f / (1.0f + device_exp(-p[e]));
    __syncwarp();
  } else {
    softmax(p, a.experts, lane);
  }
  const float* score = p;
  if (a.choice_bias != nullptr) {
    float* const biased = chosen + active;
    for (int e = lane; e < a.experts; e += 32) biased[e] = p[e] + a.choice_bias[e];
    __syncwarp();
    score = biased;
  }
  const unsigned taken = choose(score, a.experts, active, lane);
  int count = 0;
  for (int i = 0; 32 * i < a.experts; ++i) {
    const bool own = (taken >> i & 1u) != 0;
    const unsigned all = __ballot_sync(kEveryLane, own);
    const int at = count + __popc(all & ((1u << lane) - 1u));
    if (own) {
      ids[at] = 32 * i + lane;
      chosen[at] = p[32 * i + lane];
    }
    count += __popc(all);
  }
  __syncwarp();
  float sum = 0;
  for (int i = 0; i < active; ++i) sum += chosen[i];
  sum = a.normalized ? sum + a.sum_offset : 1.0f;
  for (int i = lane; i < active; i += 32) {
    const float weight = chosen[i] / sum * a.weight_scale;
    weights[i] = a.scales != nullptr ? weight * a.scales[ids[i]] : weight;
  }
  if (a.has_shared && lane == 0) row[3 * active] = 1.0f / (1.0f + device_exp(-shared));
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    route_rows(const LEQ_GRID_CONSTANT RoutedLinear a) {
  LEQ_BOUNDS(Shape::kThreads);
  float_rows_block<Shape>(a.matmul);
  if (!is_last_block(a.tickets + blockIdx.y, gridDim.x)) return;
  LEQ_DYNAMIC_SHARED(float, memory);
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t first = std::int64_t{blockIdx.y} * Shape::kTokens;
  const std::int64_t last = min(first + Shape::kTokens, a.matmul.tokens);
  for (std::int64_t token = first + warp; token < last; token += Shape::kThreads / 32) {
    route_row(a, token, memory + warp * (2 * a.experts + a.active), lane);
    __syncwarp();
  }
}

}  // namespace

void launch_route(const RoutedLinear& a, rt::Stream& stream) {
  if (a.matmul.tokens <= 0) return;
  for_float_rows(a.matmul, [&]<class Shape>(Shape, dim3 blocks) {
    constexpr int kWarps = Shape::kThreads / 32;
    constexpr int kRows = kWarps < Shape::kTokens ? kWarps : Shape::kTokens;  // at once
    static_assert(kRows * 3 * kMaxExperts * static_cast<int>(sizeof(float)) <= Shape::kBytes);
    ensure(blocks.y <= kTickets, "router: ", a.matmul.tokens, " tokens");
    rt::run(stream, {"route_rows", blocks, Shape::kThreads, Shape::kBytes, rt::Start::early},
            route_rows<Shape>, a);
  });
}

}  // namespace leq::LEQ_GPU
