// Attention on the tensor cores over packed codes (int4, simq8, simq4, simq2), as
// attention_tensor.cuh over f16 and int8. Within a span a block walks the tiles that some query
// reads as codes, then those of f16 copies: sinks and what is not closed. What a query does not
// read of a tile weighs nothing there, so its numbers depend on its position and its sequence
// alone.
//
// Both products, q k and p v, are one: rows a times b[k][n] = s[k] u[k][n] + m[k], where scales and
// minima belong to places of the sum (channels of keys, positions of values). With t = a s, rounded
// to f16:
//   sum a b = sum t (base + u) + (sum a m - sum t base)
// The first sum takes codes as operands; the second is the same for all columns that share s and m.
// Keys of int4 have their scale and minimum by column: s (sum a (base + u) - base sum a) + m sum a.
#pragma once

#include <algorithm>

#include "cuda/kernels/attention/attention_tensor.cuh"
#include "cuda/kernels/attention/packed_tiles.cuh"

namespace leq::LEQ_GPU {

// Two neighbouring f16 from place 16 step + 2 (lane % 4) on, and 8 further.
struct PairsAlong {
  std::uint32_t near, far;

  __device__ __forceinline__ PairsAlong(const std::uint16_t* from, int step, int lane) {
    const auto* const at = reinterpret_cast<const std::uint32_t*>(from) + 8 * step + lane % 4;
    near = at[0];
    far = at[4];
  }
};

// z += a m - (a s) base, in all eight columns; returns a s.
template <class Shape>
__device__ __forceinline__ void fold_operand(const std::uint32_t (&a)[4], const PairsAlong& scales,
                                             const PairsAlong& minima, float (&z)[4],
                                             std::uint32_t (&folded)[4]) {
  fold_scales(a, scales.near, scales.far, folded);
  multiply(z, a, minima.near, minima.far);
  multiply(z, folded, kMinusBase<Shape::kBits>, kMinusBase<Shape::kBits>);
}

// Scores of a warp's queries with its keys of a tile of codes.
template <class Shape>
__device__ __forceinline__ void score_codes(const unsigned char* memory,
                                            const TileOperands<Shape>& tile,
                                            const std::uint16_t* ends, int block, int dims,
                                            const WarpRows<Shape>& warp,
                                            TileScores<Shape>& scores) {
  using Memory = PackedMemory<Shape>;
  constexpr int kTiles = Shape::kRowTiles;
  constexpr int kHalves = Shape::kShares ? 1 : 2;  // of 32 keys, within one block each
  constexpr int kUnits = Shape::kKeyTiles / 2 / kHalves;
  float z[kTiles][kHalves][4] = {};
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kKeyTiles; ++j) {
      for (int k = 0; k < 4; ++k) scores[i][j][k] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < WarpRows<Shape>::kSteps; ++step) {
    if (step >= tile.units) break;
    std::uint32_t a[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if constexpr (Shape::kShares) {
        for (int k = 0; k < 4; ++k) a[i][k] = warp.queries[step][k];
      } else {
        load_operand<Shape>(memory, warp.first_query + 16 * i, step, tile.lane, a[i]);
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      std::uint32_t folded[kTiles][4];
      if constexpr (Shape::kBlocked) {
        const std::uint16_t* const row = ends + (warp.first_key + 32 * h) / block * dims;
        const PairsAlong scales(row, step, tile.lane),
            minima(row + Memory::kKeyEnds, step, tile.lane);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          fold_operand<Shape>(a[i], scales, minima, z[i][h], folded[i]);
        }
      } else {
        constexpr std::uint32_t kOnes = 0x3c003c00u;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          for (int k = 0; k < 4; ++k) folded[i][k] = a[i][k];
          if (h == 0) multiply(z[i][h], a[i], kOnes, kOnes);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int at = h * kUnits + u;
        const UnitOperand unit = tile.template unit<KvPart::keys>(warp.first_key / 16 + at, step);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          multiply(scores[i][2 * at], folded[i], unit.b[0][0], unit.b[0][1]);
          multiply(scores[i][2 * at + 1], folded[i], unit.b[1][0], unit.b[1][1]);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < Shape::kKeyTiles; ++j) {
    float2 scale = {}, minimum = {};
    if constexpr (!Shape::kBlocked) {
      const std::uint16_t* const of_keys = ends + warp.first_key + 8 * j + tile.lane % 4 * 2;
      scale = two_halves(of_keys);
      minimum = two_halves(of_keys + Memory::kKeyEnds);
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float& score = scores[i][j][k];
        if constexpr (Shape::kBlocked) {
          score += z[i][j / 2 / kUnits][k];
        } else {
          const float s = k % 2 == 0 ? scale.x : scale.y, m = k % 2 == 0 ? minimum.x : minimum.y;
          const float sum = z[i][0][k];
          score = fmaf(s, score - kBaseOf<Shape::kBits> * sum, m * sum);
        }
      }
    }
  }
}

// Weights times a tile's values.
template <class Shape>
__device__ __forceinline__ void add_code_tile(const TileOperands<Shape>& tile,
                                              const std::uint16_t* ends,
                                              const TileWeights<Shape>& weights,
                                              WarpRows<Shape>& warp) {
  using Memory = PackedMemory<Shape>;
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
#pragma unroll
    for (int g = 0; g < Shape::kShifts; ++g) {
      const std::uint16_t* const group = ends + (warp.first_column / Shape::kGroup + g) * kTile;
      const PairsAlong scales(group, step, tile.lane),
          minima(group + Memory::kValueEnds, step, tile.lane);
      std::uint32_t folded[Shape::kRowTiles][4];
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
        fold_operand<Shape>(weights[i][step], scales, minima, warp.shift[i][g], folded[i]);
      }
#pragma unroll
      for (int u = 0; u < Shape::kShiftUnits; ++u) {
        const int at = g * Shape::kShiftUnits + u;
        const int c16 = warp.first_column / 16 + at;
        if (c16 >= tile.units) break;
        const UnitOperand unit = tile.template unit<KvPart::values>(step, c16);
#pragma unroll
        for (int i = 0; i < Shape::kRowTiles; ++i) {
          multiply(warp.out[i][2 * at], folded[i], unit.b[0][0], unit.b[0][1]);
          multiply(warp.out[i][2 * at + 1], folded[i], unit.b[1][0], unit.b[1][1]);
        }
      }
    }
  }
}

// What a query reads of a tile: as codes, or in f16.
struct ReadPositions {
  Positions seen;
  CodedPositions coded;
  bool codes;

  __device__ __forceinline__ ReadPositions(const QueryBlock& block, const KvZones& zones, int query,
                                           bool codes_)
      : seen(block.seen_by(query)),
        coded(zones, block.position + query / block.heads),
        codes(codes_) {}
  __device__ __forceinline__ bool holds(int j) const {
    return seen.holds(j) && coded.holds(j) == codes;
  }
};

// A tile of codes (`codes` true) that lies in shared memory, or of f16 copies in the stage.
template <class Shape, bool codes>
__device__ __forceinline__ void use_packed_tile(const AttentionArguments& a,
                                                const QueryBlock& block,
                                                const PackedLoader<Shape>& loader, int tile,
                                                unsigned char* memory, WarpRows<Shape>& warp) {
  const int lane = ptx::opaque(threadIdx.x % 32), dims = a.heads.head_dim;
  const auto* const ends = reinterpret_cast<const std::uint16_t*>(loader.ends(tile));
  const TileOperands<Shape> operands = {Shape::kShares ? loader.codes(tile) : memory, dims / 16,
                                        lane};
  TileScores<Shape> scores;
  if constexpr (codes) {
    score_codes<Shape>(memory, operands, ends, a.keys.codes.block, dims, warp, scores);
  } else {
    score_tile<Shape>(memory, memory, warp, scores);
  }
  const auto read = [&](int query) { return ReadPositions(block, a.copied.zones, query, codes); };
  const int last_query = min(warp.first_query + 16 * Shape::kRowTiles, block.queries()) - 1;
  const ReadPositions of_first = read(warp.first_query), of_last = read(last_query);
  // Positions that a row reads as codes are an interval.
  const int first = tile * kTile, last = first + kTile - 1;
  const bool whole = codes && of_first.holds(first) && of_first.holds(last) &&
                     of_last.holds(first) && of_last.holds(last);
  if (!whole) hide_unseen(read, tile, warp, scores);
  TileWeights<Shape> weights;
  weigh_tile<Shape>(warp, scores, memory, memory, weights);
  if constexpr (codes) {
    add_code_tile<Shape>(operands, ends + PackedMemory<Shape>::kValueEndsAt / 2, weights, warp);
  } else {
    add_tile<Shape>(memory, weights, warp);
  }
}

// What columns of a group share joins them.
template <class Shape>
__device__ __forceinline__ void add_shifts(WarpRows<Shape>& warp) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kColumns / 8; ++j) {
      for (int k = 0; k < 4; ++k) {
        warp.out[i][j][k] += warp.shift[i][j / 2 / Shape::kShiftUnits][k];
      }
    }
  }
}

// Tiles of a span that some query reads in f16: sinks, which lie in the first tile, and what is
// open.
struct CopyTiles {
  int first, count;
  bool apart;  // the first tile, and then those from `first` on

  __device__ __forceinline__ CopyTiles(Positions sinks, Positions open)
      : first(open.first),
        count(open.last - open.first),
        apart(!sinks.empty() && (open.empty() || open.first > 0)) {
    if (apart) ++count;
  }
  __device__ __forceinline__ int at(int i) const {
    return !apart ? first + i : i == 0 ? 0 : first + i - 1;
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    attention_packed(const LEQ_GRID_CONSTANT AttentionArguments a,
                     const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(Shape::kThreads);
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const BlockWork work = block_work(a, plan);
  const Positions seen = work.seen;
  if (seen.empty()) return;
  // Registers are short: what is read now and then lies in shared memory.
  auto& block = *reinterpret_cast<QueryBlock*>(memory + TileMemory<Shape>::kBlockAt);
  auto& sight = *reinterpret_cast<PackedSight*>(memory + PackedMemory<Shape>::kSightAt);
  if (threadIdx.x == 0) {
    block = work.queries;
    sight = PackedSight(work.queries, a.copied.zones, seen);
  }
  __syncthreads();
  PackedLoader<Shape> loader(a, block, sight, memory);
  constexpr int kAhead = Shape::kCodeStages > 1 ? Shape::kCodeStages - 1 : 1;
  for (int stage = 0; stage < kAhead; ++stage) loader.load_next();
  load_queries<Shape>(a, block, memory);
  WarpRows<Shape> warp;
  if constexpr (Shape::kShares) {
    __syncthreads();
    hold_queries<Shape>(memory, warp);
  }
  Joined<Shape> joined;
  const bool works = warp.first_query < block.queries();
  const int first_span = work.first_span(), last_span = work.last_span();
  for (int span = first_span; span <= last_span; ++span) {
    const Positions all = span_positions(span);
    const auto tiles = [&](Positions of) {
      const Positions own = {max(of.first, all.first), min(of.last, all.last)};
      return own.empty() ? Positions{0, 0}
                         : Positions{own.first / kTile, (own.last - 1) / kTile + 1};
    };
    const Positions coded = tiles(sight.coded());
    const CopyTiles copies(tiles(sight.sinks()), tiles(sight.open()));
    // Generation has no other use for the stage.
    constexpr bool kEarly = Shape::kShares;
    if (kEarly && copies.count > 0) {
      if (span > first_span) __syncthreads();
      loader.load_copies(copies.at(0));
    }
    for (int tile = coded.first; tile < coded.last; ++tile) {
      ptx::cp_async_wait<kAhead - 1>();
      __syncthreads();
      loader.clear_unseen_ends(tile);
      if constexpr (!Shape::kShares) {
        expand_tile<Shape>(loader.codes(tile), a.heads.head_dim / 16, memory);
        __syncthreads();
      }
      loader.load_next();
      if (works) use_packed_tile<Shape, true>(a, block, loader, tile, memory, warp);
    }
    for (int i = 0; i < copies.count; ++i) {
      if (!kEarly || i > 0) {
        __syncthreads();
        loader.load_copies(copies.at(i));
      }
      ptx::cp_async_wait<0>();
      __syncthreads();
      if (works) use_packed_tile<Shape, false>(a, block, loader, copies.at(i), memory, warp);
    }
    if (!works) continue;
    add_shifts(warp);
    finish_span(a, plan, block, span == first_span, span == last_span, warp, joined);
  }
  complete_queries<TensorJoin>(a, plan, block);
}

template <int bits, bool blocked, int group, int dims>
struct PackedShapes {
  // As TensorShapes.
  static constexpr int kPromptTiles = dims <= 64 ? 2 : 1;
  // Four groups to a warp's columns leave too few registers: two warps share them.
  static constexpr int kPromptColumns = dims > 64 && group == 32 ? 2 : 1;
  using Prompt = PackedShape<bits, blocked, group, dims, 8 / (kPromptTiles * kPromptColumns),
                             kPromptColumns, kPromptTiles, 1, kPromptTiles>;
  using Generation = PackedShape<bits, blocked, group, dims, 1, 4, 1, bits == 8 ? 2 : 3, 3>;
  static_assert(PackedMemory<Prompt>::kBytes <= kSharedEverywhere);
  static_assert(PackedMemory<Generation>::kBytes <= kSharedEverywhere);
};

template <int bits, bool blocked, int group, int dims>
void launch_packed(const AttentionArguments& a, const AttentionPlan& plan, rt::Stream& stream) {
  using Shapes = PackedShapes<bits, blocked, group, dims>;
  // Half a block of a prompt's queries is worth its tiles.
  const std::int64_t heads = a.heads.group;
  const std::int64_t longest = plan.which == AttentionRuns::single ? 1 : a.batch.longest_run;
  if (longest * heads > Shapes::Prompt::kQueries / 2) {
    using Shape = typename Shapes::Prompt;
    launch_queries<Shape>("attention_packed_prompt", attention_packed<Shape>,
                          PackedMemory<Shape>::kBytes, a, plan, stream);
  } else {
    using Shape = typename Shapes::Generation;
    launch_queries<Shape>("attention_packed_generation", attention_packed<Shape>,
                          PackedMemory<Shape>::kBytes, a, plan, stream);
  }
}

template <int bits, bool blocked, int group>
void launch_packed_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream) {
  if (a.heads.head_dim <= 64) return launch_packed<bits, blocked, group, 64>(a, plan, stream);
  launch_packed<bits, blocked, group, kPackedDims>(a, plan, stream);
}

}  // namespace leq::LEQ_GPU
