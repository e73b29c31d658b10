// Attention on the tensor cores, first half of a warp's computation on a tile of 64 keys and values
// in shared memory: scores and their softmax. A lane has rows g and g + 8 of 16 (g = lane / 4) and
// two neighbouring keys or columns of each eight. The sums of scores, packed to f16, have the
// layout of an operand of the product with values.
#pragma once

#include <cmath>

#include "cuda/intrinsics/arrays.cuh"
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/kernels/attention/attention_tiles.cuh"

namespace leq::LEQ_GPU {

inline constexpr float kMaskedScore = -INFINITY;

// Sums of int8 products start at the bits of 1.5 * 2^23, so that an int32 sum has the bits of a
// float. This holds if no sum reaches 2^22.
template <class Shape>
inline constexpr bool kSumsAreFloats = Shape::kDims <= 128;
inline constexpr int kFloatBits = 0x4b400000;
inline constexpr float kFloatOffset = 12582912.0f;

inline constexpr std::uint32_t kCodeOffset = 0x64006400u;  // f16 1024 twice; 1024 | u is 1024 + u

template <class Shape>
using TileScores = float[Shape::kRowTiles][Shape::kKeyTiles][4];
template <class Shape>
using TileWeights = std::uint32_t[Shape::kRowTiles][kTile / 16][4];

// A warp's state for its queries.
template <class Shape>
struct WarpRows {
  static constexpr int kTiles = Shape::kRowTiles;
  static constexpr int kSteps = TileMemory<Shape>::Rows::kChunks / 2;  // steps of 32 bytes each
  int first_query, first_column, first_key;   // in the block, and in a tile
  float out[kTiles][Shape::kColumns / 8][4];  // sums of weight * value over the span
  float shift[kTiles][Shape::kShifts > 0 ? Shape::kShifts : 1][4];  // shared by a column group
  float largest[kTiles][2];  // largest score of the span, times log2 e
  float total[kTiles][2];    // sum of the span's weights, only this lane's
  float middle[kTiles][2];   // sum of weights times the middle of codes
  std::uint32_t offset;      // kCodeOffset
  int start[4];              // initial value of sums of int8 products
  // The queries as mma operands are in registers if warps share scores; otherwise registers do not
  // suffice. In generation the scale and sum of each query are in registers, too.
  std::uint32_t queries[kTiles][Shape::kShares ? kSteps : 1][4];
  float2 facts[kTiles][2];

  __device__ __forceinline__ WarpRows() {
    const int warp = static_cast<int>(threadIdx.x / 32);
    // Neighbouring warps share queries, so that they run on different schedulers of the SM.
    const int column_warp = Shape::kGeneration ? warp : warp % Shape::kColumnWarps;
    first_query = Shape::kGeneration ? 0 : warp / Shape::kColumnWarps * 16 * kTiles;
    first_column = column_warp * Shape::kColumns;
    first_key = column_warp * 8 * Shape::kKeyTiles;
    // These registers are opaque to the compiler: an instruction can encode only one constant, and
    // ptxas would recompute the other constant and the initial sums before each mma.
    offset = __shfl_sync(kEveryLane, kCodeOffset, 0);
    for (int k = 0; k < 4; ++k) {
      start[k] = __shfl_sync(kEveryLane, kSumsAreFloats<Shape> ? kFloatBits : 0, k);
    }
    clear();
  }
  __device__ __forceinline__ void clear() {
    fill(largest, kMaskedScore);
    fill(total, 0.0f);
    fill(middle, 0.0f);
    fill(out, 0.0f);
    fill(shift, 0.0f);
  }
  // Returns the query of row g (half 0) or of row g + 8 (half 1) of a row tile, g = lane / 4.
  __device__ __forceinline__ int query(int tile, int half) const {
    return first_query + 16 * tile + 8 * half + static_cast<int>(threadIdx.x % 32) / 4;
  }
};

__device__ __forceinline__ void multiply(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  ptx::mma_m16n8k32_s8_u8(d, a, b0, b1);
}
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  ptx::mma_m16n8k16_f16(d, a, b0, b1);
}

template <class Shape>
__device__ __forceinline__ void load_operand(const unsigned char* memory, int first_query, int step,
                                             int lane, std::uint32_t (&a)[4]) {
  using Rows = typename TileMemory<Shape>::Rows;
  ptx::ldmatrix_x4(a, memory + TileMemory<Shape>::kQueriesAt +
                          Rows::at(first_query + lane % 16, 2 * step + lane / 16));
}
template <class Shape>
__device__ __forceinline__ const float2* facts_at(const unsigned char* memory) {
  return reinterpret_cast<const float2*>(memory + TileMemory<Shape>::kFactsAt);
}
// Loads operands that stay in registers. Called once after the barrier that follows load_queries.
template <class Shape>
__device__ __forceinline__ void hold_queries(const unsigned char* memory, WarpRows<Shape>& warp) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int step = 0; step < WarpRows<Shape>::kSteps; ++step) {
      load_operand<Shape>(memory, warp.first_query + 16 * i, step,
                          static_cast<int>(threadIdx.x % 32), warp.queries[i][step]);
    }
    if constexpr (Shape::kCoded && Shape::kGeneration) {
      for (int half = 0; half < 2; ++half) {
        warp.facts[i][half] = facts_at<Shape>(memory)[warp.query(i, half)];
      }
    }
  }
}

// Dot products of the warp's queries with its keys of the tile: sums of f16 or of int8 products.
// Both kinds of mma read 32 bytes of a row, and a lane has the same bytes in both.
template <class Shape, class Sum>
__device__ __forceinline__ void dot_products(const unsigned char* memory, const unsigned char* keys,
                                             const WarpRows<Shape>& warp,
                                             Sum (&sums)[Shape::kRowTiles][Shape::kKeyTiles][4]) {
  using Rows = typename TileMemory<Shape>::Rows;
  const int lane = ptx::opaque(threadIdx.x % 32);
#pragma unroll
  for (int step = 0; step < WarpRows<Shape>::kSteps; ++step) {
    std::uint32_t a[Shape::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      if constexpr (Shape::kShares) {
        for (int k = 0; k < 4; ++k) a[i][k] = warp.queries[i][step][k];
      } else {
        load_operand<Shape>(memory, warp.first_query + 16 * i, step, lane, a[i]);
      }
    }
#pragma unroll
    for (int j = 0; j < Shape::kKeyTiles; j += 2) {
      std::uint32_t b[4];
      const int row = warp.first_key + 8 * j + lane / 16 * 8 + lane % 8;
      ptx::ldmatrix_x4(b, keys + Rows::at(row, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
        multiply(sums[i][j], a[i], b[0], b[1]);
        multiply(sums[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ float2 two_halves(const std::uint16_t* at) {
  const std::uint32_t both = *reinterpret_cast<const std::uint32_t*>(at);
  return {ptx::f16_to_f32(static_cast<std::uint16_t>(both)),
          ptx::f16_to_f32(static_cast<std::uint16_t>(both >> 16))};
}

// A query's scale, times log2 e, and the sum of its codes.
template <class Shape>
__device__ __forceinline__ float2 query_facts(const unsigned char* memory,
                                              const WarpRows<Shape>& warp, int tile, int half) {
  if constexpr (Shape::kGeneration) return warp.facts[tile][half];
  return facts_at<Shape>(memory)[warp.query(tile, half)];
}
// The factor that converts a query's score to an exponent of two.
template <class Shape>
__device__ __forceinline__ float row_factor(const unsigned char* memory,
                                            const WarpRows<Shape>& warp, int tile, int half) {
  if constexpr (!Shape::kCoded) return kLog2E;
  return query_facts<Shape>(memory, warp, tile, half).x;
}

// fma(s, float(sum u q), m * float(sum q)): the score without the query's scale, which does not
// depend on the tile and is part of row_factor.
template <class Shape>
__device__ __forceinline__ void score_codes(const unsigned char* memory, const unsigned char* stage,
                                            const WarpRows<Shape>& warp,
                                            TileScores<Shape>& scores) {
  using Memory = TileMemory<Shape>;
  constexpr bool kFloats = kSumsAreFloats<Shape>;
  int sums[Shape::kRowTiles][Shape::kKeyTiles][4];
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kKeyTiles; ++j) {
      for (int k = 0; k < 4; ++k) sums[i][j][k] = warp.start[k];
    }
  }
  dot_products<Shape>(memory, stage, warp, sums);
  float code_sums[Shape::kRowTiles][2];
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    for (int half = 0; half < 2; ++half) {
      code_sums[i][half] = query_facts<Shape>(memory, warp, i, half).y;
    }
  }
  const auto* const ends = reinterpret_cast<const std::uint16_t*>(stage + Memory::kKeyEndsAt) +
                           warp.first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < Shape::kKeyTiles; ++j) {
    const float2 scale = two_halves(ends + 8 * j), minimum = two_halves(ends + kTile + 8 * j);
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float sum = kFloats ? __int_as_float(sums[i][j][k]) - kFloatOffset
                                  : static_cast<float>(sums[i][j][k]);
        const float low = (k % 2 == 0 ? minimum.x : minimum.y) * code_sums[i][k / 2];
        scores[i][j][k] = fmaf(k % 2 == 0 ? scale.x : scale.y, sum, low);
      }
    }
  }
}

template <class Shape>
__device__ __forceinline__ void score_tile(const unsigned char* memory, const unsigned char* stage,
                                           const WarpRows<Shape>& warp, TileScores<Shape>& scores) {
  if constexpr (Shape::kCoded) {
    score_codes<Shape>(memory, stage, warp, scores);
  } else {
    fill(scores, 0.0f);
    dot_products<Shape>(memory, stage, warp, scores);
  }
}

// Masks keys that are not visible: if visible(query).holds(position) is false, the weight is 0.
template <class Shape, class Visible>
__device__ __forceinline__ void mask_hidden(Visible visible, int tile, const WarpRows<Shape>& warp,
                                            TileScores<Shape>& scores) {
  const int first = tile * kTile + warp.first_key + ptx::opaque(threadIdx.x % 4) * 2;
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto seen = visible(warp.query(i, half));
#pragma unroll
      for (int j = 0; j < Shape::kKeyTiles; ++j) {
        for (int k = 0; k < 2; ++k) {
          float& score = scores[i][j][2 * half + k];
          if (!seen.holds(first + 8 * j + k)) score = kMaskedScore;
        }
      }
    }
  }
}

__device__ __forceinline__ float four_lane_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kEveryLane, x, 1));
  return fmaxf(x, __shfl_xor_sync(kEveryLane, x, 2));
}
__device__ __forceinline__ float four_lane_sum(float x) {
  x += __shfl_xor_sync(kEveryLane, x, 1);
  return x + __shfl_xor_sync(kEveryLane, x, 2);
}

// Joins sums relative to a maximum M with sums relative to another maximum m: M' = max(M, m),
// a = 2^(M - M'), b = 2^(m - M'). If no position was visible, a (or b) is 0.
struct Join {
  float largest, reference, keep;  // M'; M', or 0 if no position was visible at all; a

  __device__ __forceinline__ Join(float before, float more)
      : largest(fmaxf(before, more)),
        reference(largest == kMaskedScore ? 0.0f : largest),
        keep(ptx::exp2_near(before - reference)) {}
  __device__ __forceinline__ float take(float more) const {
    return ptx::exp2_near(more - reference);
  }
};

// Joins spans in the same way as Joined (attention_tile_values.cuh).
template <class Shape>
struct TensorJoin {
  static constexpr float kStart = kMaskedScore;
  float largest, keep, take;

  __device__ __forceinline__ TensorJoin(float before, float, float more) {
    const Join join(before, more);
    largest = join.largest;
    keep = join.keep;
    take = join.take(more);
  }
  static __device__ __forceinline__ float score(float sink) {
    return fmaf(sink, kLog2E, Shape::kWeightBits);  // sums of weights have this factor
  }
};

// The barrier and the shared memory of two warps that share queries.
template <class Shape>
__device__ __forceinline__ void sync_pair(const WarpRows<Shape>& warp) {
  ptx::sync_threads(1 + warp.first_query / (16 * Shape::kRowTiles), 64);
}
template <class Shape>
__device__ __forceinline__ PairShare<Shape>& pair_share(unsigned char* memory,
                                                        const WarpRows<Shape>& warp) {
  auto* const all = reinterpret_cast<PairShare<Shape>*>(memory + TileMemory<Shape>::kQueriesAt);
  return all[warp.first_query / (16 * Shape::kRowTiles)];
}

// Returns the largest score in the tile of each of a lane's queries. Warps that share scores
// exchange their maxima.
template <class Shape>
__device__ __forceinline__ void largest_of_tile(const WarpRows<Shape>& rows,
                                                const TileScores<Shape>& scores,
                                                unsigned char* memory,
                                                float (&most)[Shape::kRowTiles][2]) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < Shape::kKeyTiles; ++j) {
        const float larger = fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]);
        most[i][half] = j == 0 ? larger : fmaxf(most[i][half], larger);
      }
      most[i][half] = four_lane_max(most[i][half]);
    }
  }
  if constexpr (Shape::kColumnWarps == 2) {
    auto& share = pair_share<Shape>(memory, rows);
    const int lane = static_cast<int>(threadIdx.x % 32), own = rows.first_key / 32;
    const int part = lane % 4;
    float mine = most[0][0];
#pragma unroll
    for (int k = 1; k < 2 * Shape::kRowTiles; ++k) mine = part == k ? most[k / 2][k % 2] : mine;
    if (part < 2 * Shape::kRowTiles) share.largest[own][lane / 4][part] = mine;
    sync_pair<Shape>(rows);
    const float* const others = share.largest[1 - own][lane / 4];
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      const float2 other = reinterpret_cast<const float2*>(others)[i];
      most[i][0] = fmaxf(most[i][0], other.x);
      most[i][1] = fmaxf(most[i][1], other.y);
    }
  } else if constexpr (Shape::kGeneration) {
    auto& share = *reinterpret_cast<TileShare*>(memory + TileMemory<Shape>::kShareAt);
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int half_of_lane = lane % 4;
    if (half_of_lane < 2) {
      share.largest[lane / 4 + half_of_lane * 8][warp] =
          half_of_lane == 0 ? most[0][0] : most[0][1];
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 all = *reinterpret_cast<const float4*>(share.largest[lane / 4 + half * 8]);
      most[0][half] = fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w));
    }
  }
}

// Sums over each 16 keys of a tile: a query's weights, and weights times the middle of the range
// that the values' codes represent.
struct QuerySums {
  float weights[kTile / 16], middles[kTile / 16];

  // Adds the sums of groups of 16 keys in pairs; each warp of a pair has the sum of 32 keys.
  template <class Shape>
  static __device__ __forceinline__ float all(const float (&sums)[kTile / 16]) {
    if constexpr (Shape::kColumnWarps == 2) return sums[0] + sums[1];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
};

__device__ __forceinline__ void take_operand(std::uint32_t (&operand)[4], const uint4& words) {
  operand[0] = words.x;
  operand[1] = words.y;
  operand[2] = words.z;
  operand[3] = words.w;
}

// In generation each warp publishes its weights of 16 keys and their sums to the other warps;
// afterwards every warp has all weights and the sums of each 16 keys.
template <class Shape>
__device__ __forceinline__ void exchange_weights(unsigned char* memory, TileWeights<Shape>& weights,
                                                 QuerySums (&sums)[2]) {
  auto& share = *reinterpret_cast<TileShare*>(memory + TileMemory<Shape>::kShareAt);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  [[maybe_unused]] auto* const pairs = reinterpret_cast<float2*>(share.sums);
  const std::uint32_t(&mine)[4] = weights[0][0];
  share.weights[warp][lane] = {mine[0], mine[1], mine[2], mine[3]};
  if constexpr (Shape::kCoded) {
    share.sums[warp][lane] = {sums[0].weights[0], sums[1].weights[0], sums[0].middles[0],
                              sums[1].middles[0]};
  } else {
    pairs[warp * 32 + lane] = {sums[0].weights[0], sums[1].weights[0]};
  }
  __syncthreads();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    take_operand(weights[0][step], share.weights[step][lane]);
    if constexpr (Shape::kCoded) {
      const float4 both = share.sums[step][lane];
      sums[0].weights[step] = both.x;
      sums[1].weights[step] = both.y;
      sums[0].middles[step] = both.z;
      sums[1].middles[step] = both.w;
    } else {
      const float2 both = pairs[step * 32 + lane];
      sums[0].weights[step] = both.x;
      sums[1].weights[step] = both.y;
    }
  }
}

// Each of two warps that share queries passes its weights of 32 keys, stored at indices 0 and 1,
// and their sums to the other warp. Afterwards both have all weights and the sums of each 32 keys.
template <class Shape>
__device__ __forceinline__ void exchange_with_other(const WarpRows<Shape>& warp,
                                                    unsigned char* memory,
                                                    TileWeights<Shape>& weights,
                                                    QuerySums (&sums)[Shape::kRowTiles][2]) {
  auto& share = pair_share<Shape>(memory, warp);
  const int lane = static_cast<int>(threadIdx.x % 32), own = warp.first_key / 32;
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const std::uint32_t(&mine)[4] = weights[i][step];
      share.weights[own][i][step][lane] = {mine[0], mine[1], mine[2], mine[3]};
    }
    for (QuerySums& of : sums[i]) {
      of.weights[0] += of.weights[1];
      if constexpr (Shape::kCoded) of.middles[0] += of.middles[1];
    }
    share.sums[own][i][0][lane] = {sums[i][0].weights[0], sums[i][1].weights[0]};
    if constexpr (Shape::kCoded) {
      share.sums[own][i][1][lane] = {sums[i][0].middles[0], sums[i][1].middles[0]};
    }
  }
  sync_pair<Shape>(warp);
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      take_operand(weights[i][step], share.weights[step / 2][i][step % 2][lane]);
    }
    const float2 more = share.sums[1 - own][i][0][lane];
    sums[i][0].weights[1] = more.x;
    sums[i][1].weights[1] = more.y;
    if constexpr (Shape::kCoded) {
      const float2 more_middles = share.sums[1 - own][i][1][lane];
      sums[i][0].middles[1] = more_middles.x;
      sums[i][1].middles[1] = more_middles.y;
    }
  }
}

// Rescales earlier sums to the new largest score. Usually no row of the warp has a larger score, so
// that all factors are 1.
template <class Shape>
__device__ __forceinline__ void keep_sums(WarpRows<Shape>& warp, int tile, const float (&keep)[2]) {
  if (!__any_sync(kEveryLane, keep[0] != 1.0f || keep[1] != 1.0f)) return;
#pragma unroll
  for (int j = 0; j < Shape::kColumns / 8; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) warp.out[tile][j][k] *= keep[k / 2];
  }
#pragma unroll
  for (int j = 0; j < Shape::kShifts; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) warp.shift[tile][j][k] *= keep[k / 2];
  }
}

// Codes u of the values of two neighbouring keys represent the numbers middle + scale (u - 128).
inline constexpr float kMiddleCode = 128.0f;
struct ValuePair {
  float2 scale = {}, middle = {};

  __device__ __forceinline__ void read(const std::uint16_t* ends) {
    scale = two_halves(ends);
    const float2 minimum = two_halves(ends + kTile);
    middle = {fmaf(kMiddleCode, scale.x, minimum.x), fmaf(kMiddleCode, scale.y, minimum.y)};
  }
};

// Converts scores to weights in f16, which are operands, and rescales earlier sums to the new
// largest score. If values are codes, their scale is multiplied into the weights.
template <class Shape>
__device__ __forceinline__ void weigh_tile(WarpRows<Shape>& warp, const TileScores<Shape>& scores,
                                           unsigned char* memory, const unsigned char* stage,
                                           TileWeights<Shape>& weights) {
  constexpr int kTiles = Shape::kRowTiles;
  float factor[kTiles][2], shift[kTiles][2], keep[kTiles][2];
  largest_of_tile<Shape>(warp, scores, memory, shift);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[i][half] = row_factor(memory, warp, i, half);
      const Join join(warp.largest[i][half], shift[i][half] * factor[i][half]);
      shift[i][half] = Shape::kWeightBits - join.reference;
      keep[i][half] = join.keep;
      warp.largest[i][half] = join.largest;
    }
  }
  const auto* const ends =
      reinterpret_cast<const std::uint16_t*>(stage + TileMemory<Shape>::kValueEndsAt) +
      warp.first_key + threadIdx.x % 4 * 2;
  QuerySums sums[kTiles][2];
#pragma unroll
  for (int j = 0; j < Shape::kKeyTiles; ++j) {
    ValuePair values;
    if constexpr (Shape::kCoded) values.read(ends + 8 * j);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&score)[4] = scores[i][j];
        float first = ptx::exp2_near(fmaf(score[2 * half], factor[i][half], shift[i][half]));
        float second = ptx::exp2_near(fmaf(score[2 * half + 1], factor[i][half], shift[i][half]));
        float &weight = sums[i][half].weights[j / 2], &middle = sums[i][half].middles[j / 2];
        weight = j % 2 == 0 ? first + second : weight + (first + second);
        if constexpr (Shape::kCoded) {
          const float before =
              j % 2 == 0 ? first * values.middle.x : fmaf(first, values.middle.x, middle);
          middle = fmaf(second, values.middle.y, before);
          first *= values.scale.x;
          second *= values.scale.y;
        }
        weights[i][j / 2][j % 2 * 2 + half] = ptx::f16x2_of(first, second);
      }
    }
  }
  if constexpr (Shape::kColumnWarps == 2) exchange_with_other(warp, memory, weights, sums);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if constexpr (Shape::kGeneration) exchange_weights<Shape>(memory, weights, sums[i]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QuerySums& more = sums[i][half];
      warp.total[i][half] =
          warp.total[i][half] * keep[i][half] + QuerySums::all<Shape>(more.weights);
      if constexpr (Shape::kCoded) {
        warp.middle[i][half] =
            warp.middle[i][half] * keep[i][half] + QuerySums::all<Shape>(more.middles);
      }
    }
    keep_sums(warp, i, keep[i]);
  }
}

}  // namespace leq::LEQ_GPU
