// Attention on the tensor cores over packed codes (simq4), structured as in
// attention_tensor.cuh. Within a span a block first processes the tiles that some query reads
// as codes, then the tiles of f16 copies: sinks and blocks not yet closed. Positions of a tile
// that a query does not read get weight 0 there, so that the query's output depends on its
// position and its sequence alone.
//
// Both products, q k and p v, have one form: rows a times b[k][n] = s[k] u[k][n] + m[k], where
// scales s and minima m are indexed by k, the summation index (channels of keys, positions of
// values). With t = a s, rounded to f16:
//   sum a b = sum t u + sum a m
// The codes u are operands of the first sum; the second is the same for all columns that share m.
#include <algorithm>

#include "cuda/kernels/attention/attention_tensor.cuh"
#include "cuda/kernels/attention/packed_tiles.cuh"

namespace leq::LEQ_GPU {

// Computes z += a m in all eight columns, and folded = a s.
__device__ __forceinline__ void fold_operand(const std::uint32_t (&a)[4], const UnitEnds& scales,
                                             const UnitEnds& minima, float (&z)[4],
                                             std::uint32_t (&folded)[4]) {
  fold_scales(a, scales, folded);
  multiply(z, a, minima.near, minima.far);
}

// A warp's keys of a tile form one or two halves of at most 32 keys; a half is within one block.
template <class Shape>
inline constexpr int kKeyHalves = Shape::kKeyTiles > 4 ? 2 : 1;
template <class Shape>
using KeyShifts = float[Shape::kRowTiles][kKeyHalves<Shape>][4];

// Converts sums over codes in f16 form to scores. All keys of a half share z, the sum of q m.
template <class Shape>
__device__ __forceinline__ void finish_scores(const KeyShifts<Shape>& z,
                                              TileScores<Shape>& scores) {
#pragma unroll
  for (int j = 0; j < Shape::kKeyTiles; ++j) {
    const float unit = code_unit(j % 2);
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float& score = scores[i][j][k];
        score = fmaf(score, unit, z[i][j * kKeyHalves<Shape> / Shape::kKeyTiles][k]);
      }
    }
  }
}

// Scores of a warp's queries with its keys of a tile of codes. wide: the head is as wide as the
// shape, so that the kernel for generation can load its keys as vectors.
template <class Shape, bool wide>
__device__ __forceinline__ void score_codes(const unsigned char* memory,
                                            const TileOperands<Shape>& tile,
                                            const std::uint16_t* ends, int block,
                                            const WarpRows<Shape>& warp,
                                            TileScores<Shape>& scores) {
  using Memory = PackedMemory<Shape>;
  constexpr int kTiles = Shape::kRowTiles;
  constexpr int kHalves = kKeyHalves<Shape>;
  constexpr int kUnits = Shape::kKeyTiles / 2 / kHalves;
  KeyShifts<Shape> z = {};
  fill(scores, 0.0f);
  [[maybe_unused]] KeyWords<Shape> words;
  if constexpr (wide) words.load(tile, warp.first_key / 16);
#pragma unroll
  for (int step = 0; step < WarpRows<Shape>::kSteps; ++step) {
    if (!wide && step >= tile.dims / 16) break;
    std::uint32_t a[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if constexpr (Shape::kShares) {
        for (int k = 0; k < 4; ++k) a[i][k] = warp.queries[i][step][k];
      } else {
        load_operand<Shape>(memory, warp.first_query + 16 * i, step, static_cast<int>(tile.lane),
                            a[i]);
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      std::uint32_t folded[kTiles][4];
      // A tile has one block of keys, or two blocks, each with a row of scales.
      const int row = warp.first_key + 32 * h >= block ? tile.dims : 0;
      UnitEnds scales, minima;
      if constexpr (wide) {
        const std::uint16_t* const of_block = ends + row;
        scales = TwoUnitEnds(of_block, step / 2, tile.lane).unit[step % 2];
        minima = TwoUnitEnds(of_block + Memory::kKeyEnds, step / 2, tile.lane).unit[step % 2];
      } else {
        const KeyEnds of_block(ends + row, tile.dims, tile.lane);
        scales = of_block.of(step, 0);
        minima = of_block.of(step, Memory::kKeyEnds);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) fold_operand(a[i], scales, minima, z[i][h], folded[i]);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int at = h * kUnits + u, s16 = warp.first_key / 16 + at;
        UnitOperand unit;
        if constexpr (wide) {
          unit = words.unit(step);
        } else {
          unit = tile.template unit<KvPart::keys>(s16, step);
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          multiply(scores[i][2 * at], folded[i], unit.b[0][0], unit.b[0][1]);
          multiply(scores[i][2 * at + 1], folded[i], unit.b[1][0], unit.b[1][1]);
        }
      }
    }
  }
  finish_scores<Shape>(z, scores);
}

// Adds weights times a tile's values. The sums lack the factor code_unit until scale_sums().
template <class Shape>
__device__ __forceinline__ void add_code_tile(const TileOperands<Shape>& tile,
                                              const std::uint16_t* ends,
                                              const TileWeights<Shape>& weights,
                                              WarpRows<Shape>& warp) {
  using Memory = PackedMemory<Shape>;
  [[maybe_unused]] ValueWords<Shape> words;
  if constexpr (Shape::kGeneration) words.load(tile, warp.first_column / 16);
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
#pragma unroll
    for (int g = 0; g < Shape::kShifts; ++g) {
      const std::uint16_t* const group = ends + (warp.first_column / Shape::kGroup + g) * kTile;
      const UnitEnds scales = TwoUnitEnds(group, step / 2, tile.lane).unit[step % 2];
      const UnitEnds minima =
          TwoUnitEnds(group + Memory::kValueEnds, step / 2, tile.lane).unit[step % 2];
      std::uint32_t folded[Shape::kRowTiles][4];
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
        fold_operand(weights[i][step], scales, minima, warp.shift[i][g], folded[i]);
      }
#pragma unroll
      for (int u = 0; u < Shape::kShiftUnits; ++u) {
        const int at = g * Shape::kShiftUnits + u;
        UnitOperand unit;
        if constexpr (Shape::kGeneration) {
          unit = words.unit(step, at);
        } else {
          const int c16 = warp.first_column / 16 + at;
          if (c16 >= tile.dims / 16) break;
          unit = tile.template unit<KvPart::values>(step, c16);
        }
#pragma unroll
        for (int i = 0; i < Shape::kRowTiles; ++i) {
          multiply(warp.out[i][2 * at], folded[i], unit.b[0][0], unit.b[0][1]);
          multiply(warp.out[i][2 * at + 1], folded[i], unit.b[1][0], unit.b[1][1]);
        }
      }
    }
  }
}

// Called after a span's tiles of codes: converts the sums to sums of weight * scale * code.
template <class Shape>
__device__ __forceinline__ void scale_sums(WarpRows<Shape>& warp) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kColumns / 8; ++j) {
      for (int k = 0; k < 4; ++k) warp.out[i][j][k] *= code_unit(j % 2);
    }
  }
}

// The positions of a tile that a query reads in one form, as codes or in f16.
struct ReadPositions {
  Positions seen;
  CodedPositions coded;
  bool codes;

  __device__ __forceinline__ ReadPositions(const QueryBlock& block, const KvResidual& residual,
                                           int query, bool codes_)
      : seen(block.visible_to(query)),
        coded(residual, block.position + query / block.heads),
        codes(codes_) {}
  __device__ __forceinline__ bool holds(int j) const {
    return seen.holds(j) && coded.holds(j) == codes;
  }
};

// The tiles in which every query of the warp reads all positions as codes.
template <class Shape>
__device__ __forceinline__ WholeTiles coded_tiles(const AttentionArguments& a,
                                                  const QueryBlock& block,
                                                  const WarpRows<Shape>& warp) {
  const int last_query = min(warp.first_query + 16 * Shape::kRowTiles, block.queries()) - 1;
  const ReadPositions first(block, a.copied.residual, warp.first_query, true);
  const ReadPositions last(block, a.copied.residual, last_query, true);
  // The first and last query suffice, because no bound decreases from one position to the next.
  return WholeTiles(
      Positions{max(last.seen.first, last.coded.first), min(first.seen.last, first.coded.last)});
}

// Processes a tile in shared memory: a tile of codes if `codes`, else f16 copies in the stage.
template <class Shape, bool codes>
__device__ __forceinline__ void use_packed_tile(const AttentionArguments& a,
                                                const QueryBlock& block,
                                                const PackedLoader<Shape>& loader, int tile,
                                                const WholeTiles& whole, unsigned char* memory,
                                                WarpRows<Shape>& warp) {
  const auto lane = static_cast<unsigned>(ptx::opaque(threadIdx.x % 32));
  const int dims = a.heads.head_dim;
  const auto* const ends = reinterpret_cast<const std::uint16_t*>(loader.ends());
  TileScores<Shape> scores;
  const TileOperands<Shape> operands = {Shape::kGeneration ? loader.codes() : memory, dims, lane};
  if constexpr (!codes) {
    score_tile<Shape>(memory, memory, warp, scores);
  } else if (Shape::kGeneration && dims == Shape::kDims) {
    const TileOperands<Shape> wide = {operands.memory, Shape::kDims, lane};
    score_codes<Shape, Shape::kGeneration>(memory, wide, ends, a.keys.codes.block, warp, scores);
  } else {
    score_codes<Shape, false>(memory, operands, ends, a.keys.codes.block, warp, scores);
  }
  if (!codes || !whole.holds(tile)) {
    const auto read = [&](int query) {
      return ReadPositions(block, a.copied.residual, query, codes);
    };
    mask_hidden(read, tile, warp, scores);
  }
  TileWeights<Shape> weights;
  weigh_tile<Shape>(warp, scores, memory, memory, weights);
  if constexpr (codes) {
    add_code_tile<Shape>(operands, ends + PackedMemory<Shape>::kValueEndsAt / 2, weights, warp);
  } else {
    add_tile<Shape>(memory, memory, weights, warp);
  }
}

// Adds to each column the shift, i.e. the sum of p m, that all columns of its group share.
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

// The tiles of a span in which some query reads f16 copies: tile 0 with the sinks, and blocks that
// are not closed.
struct CopyTiles {
  int first, count;
  bool has_gap;  // tile 0 comes first and is not adjacent to tile `first`

  __device__ __forceinline__ CopyTiles(Positions sinks, Positions open)
      : first(open.first),
        count(open.last - open.first),
        has_gap(!sinks.empty() && (open.empty() || open.first > 0)) {
    if (has_gap) ++count;
  }
  __device__ __forceinline__ int at(int i) const {
    return !has_gap ? first + i : i == 0 ? 0 : first + i - 1;
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
  // These rarely read values are in shared memory, because registers are scarce.
  auto& block = *reinterpret_cast<QueryBlock*>(memory + TileMemory<Shape>::kBlockAt);
  auto& visible = *reinterpret_cast<PackedVisible*>(memory + PackedMemory<Shape>::kVisibleAt);
  if (threadIdx.x == 0) {
    block = work.queries;
    visible = PackedVisible(work.queries, a.copied.residual, seen);
  }
  __syncthreads();
  PackedLoader<Shape> loader(a, block, visible, memory);
  constexpr int kAhead = Shape::kCodeStages > 1 ? Shape::kCodeStages - 1 : 1;
  for (int stage = 0; stage < kAhead; ++stage) loader.load_next();
  load_queries<Shape>(a, block, memory);
  WarpRows<Shape> warp;
  if constexpr (Shape::kShares) {
    __syncthreads();
    hold_queries<Shape>(memory, warp);
  }
  const WholeTiles whole = coded_tiles(a, block, warp);
  Joined<Shape> joined;
  const bool works = Shape::kGeneration || warp.first_query < block.queries();
  const int first_span = work.first_span(), last_span = work.last_span();
  for (int span = first_span; span <= last_span; ++span) {
    const Positions all = span_positions(span);
    const auto tiles = [&](Positions of) {
      const Positions own = {max(of.first, all.first), min(of.last, all.last)};
      return own.empty() ? Positions{0, 0}
                         : Positions{own.first / kTile, (own.last - 1) / kTile + 1};
    };
    const Positions coded = tiles(visible.coded());
    const CopyTiles copies(tiles(visible.sinks()), tiles(visible.open()));
    // In generation the f16 stage is free during the tiles of codes, so first copies load early.
    constexpr bool kEarly = Shape::kGeneration;
    if (kEarly && copies.count > 0) {
      if (span > first_span) __syncthreads();
      loader.load_copies(copies.at(0));
    }
    for (int tile = coded.first; tile < coded.last; ++tile) {
      ptx::cp_async_wait<kAhead - 1>();
      __syncthreads();
      loader.clear_unseen_ends(tile);
      if constexpr (!Shape::kGeneration) {
        expand_tile<Shape>(loader.codes(), a.heads.head_dim, memory);
        __syncthreads();
      }
      loader.load_next();
      if (works) use_packed_tile<Shape, true>(a, block, loader, tile, whole, memory, warp);
      loader.leave();
    }
    scale_sums(warp);
    for (int i = 0; i < copies.count; ++i) {
      if (!kEarly || i > 0) {
        __syncthreads();
        loader.load_copies(copies.at(i));
      }
      ptx::cp_async_wait<0>();
      __syncthreads();
      if (works) use_packed_tile<Shape, false>(a, block, loader, copies.at(i), whole, memory, warp);
    }
    if (!works) continue;
    add_shifts(warp);
    finish_span(a, plan, block, span == first_span, span == last_span, warp, joined);
  }
  complete_queries<TensorJoin<Shape>>(a, plan, block);
}

template <int dims>
struct PackedShapes {
  // These values are the same as in TensorShapes.
  static constexpr int kPromptColumns = dims <= 64 ? 1 : 2;
  using Prompt = PackedShape<dims, 4, kPromptColumns, 2, 1, dims <= 64 ? 2 : 1>;
  using Generation = PackedShape<dims, 1, 4, 1, 3, 3>;
  static_assert(PackedMemory<Prompt>::kBytes <= kSharedEverywhere);
  static_assert(PackedMemory<Generation>::kBytes <= kSharedEverywhere);
};

template <int dims>
void launch_packed(const AttentionArguments& a, const AttentionPlan& plan, rt::Stream& stream) {
  using Shapes = PackedShapes<dims>;
  // The prompt shape is faster if a block has more than half of its queries.
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

void launch_packed_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream) {
  if (a.heads.head_dim <= 64) return launch_packed<64>(a, plan, stream);
  launch_packed<kPackedDims>(a, plan, stream);
}

}  // namespace leq::LEQ_GPU
