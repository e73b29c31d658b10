// Attention on the tensor cores: the kernel and its launch. A block has up to 128 queries that
// share a kv head (a prompt) or up to 16 (generation), and iterates over tiles of 64 positions;
// each span of 512 has a softmax of its own, and spans are joined in ascending order. A query's
// output depends on its position and its sequence alone (docs/cuda-kernels.md).
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/attention/attention_join.cuh"
#include "cuda/kernels/attention/attention_launch.h"
#include "cuda/kernels/attention/attention_tile_values.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kSpanTiles = kSpanTokens / kTile;

// Joins the span that has just ended to the earlier spans, or if split writes it as a record.
template <class Shape>
__device__ __forceinline__ void finish_span(const AttentionArguments& a, const AttentionPlan& plan,
                                            const QueryBlock& block, bool first, bool last,
                                            WarpRows<Shape>& warp, Joined<Shape>& joined) {
  if constexpr (Shape::kCoded) add_middles(warp);
  const int dims = a.heads.head_dim;
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = four_lane_sum(warp.total[i][half]);
      const int query = warp.query(i, half);
      const bool there = query < block.queries();
      const std::int64_t row = block.row + query / block.heads;
      const std::int64_t head = block.head + query % block.heads;
      if (!plan.split) {
        float* const out = a.out.values + row * a.out.stride + head * dims;
        joined.add(warp, i, half, total, first, last, a.heads, head, there ? out : nullptr);
      } else if (there) {
        float* const record =
            a.scratch +
            ((std::int64_t{first_record(plan, block) + query / block.heads} * a.heads.heads +
              head) *
                 plan.spans +
             blockIdx.z) *
                (dims + 2);
        store_record(warp, i, half, total, dims, record);
      }
    }
  }
  warp.clear();
}

// The positions visible to any query of the warp, and the tiles visible to all of its queries.
struct VisibleTiles {
  Positions any;
  WholeTiles all;

  template <class Shape>
  __device__ __forceinline__ VisibleTiles(const QueryBlock& block, const WarpRows<Shape>& warp)
      : VisibleTiles(
            block.visible_to(warp.first_query),
            block.visible_to(min(warp.first_query + 16 * Shape::kRowTiles, block.queries()) - 1)) {}
  __device__ __forceinline__ VisibleTiles(Positions least, Positions most)
      : any{least.first, most.last}, all(Positions{most.first, least.last}) {}
};

template <class Shape>
__device__ __forceinline__ void use_tile(const QueryBlock& block, const VisibleTiles& visible,
                                         int tile, unsigned char* memory,
                                         const unsigned char* stage, WarpRows<Shape>& warp) {
  const bool whole = visible.all.holds(tile);
  if (!whole && (tile * kTile + kTile <= visible.any.first || tile * kTile >= visible.any.last))
    return;
  TileScores<Shape> scores;
  score_tile<Shape>(memory, stage, warp, scores);
  if (!whole) {
    mask_hidden([&](int query) { return block.visible_to(query); }, tile, warp, scores);
  }
  TileWeights<Shape> weights;
  weigh_tile<Shape>(warp, scores, memory, stage, weights);
  add_tile<Shape>(memory, stage, weights, warp);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    attention_tensor(const LEQ_GRID_CONSTANT AttentionArguments a,
                     const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(Shape::kThreads);
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  ptx::let_successor_start();
  if (!a.batch.settled) ptx::wait_for_predecessor();
  const BlockWork work = block_work(a, plan);
  const Positions seen = work.seen;
  if (seen.empty()) return ptx::wait_for_predecessor();
  // These rarely read values are in shared memory, because registers are scarce.
  auto& block = *reinterpret_cast<QueryBlock*>(memory + TileMemory<Shape>::kBlockAt);
  if (threadIdx.x == 0) block = work.queries;
  __syncthreads();
  TileLoader<Shape> loader(a, block, seen, memory);
  for (int stage = 0; stage < Shape::kAhead; ++stage) {
    if (!loader.next_is_settled()) ptx::wait_for_predecessor();
    loader.load_next();
  }
  ptx::wait_for_predecessor();
  load_queries<Shape>(a, block, memory);
  WarpRows<Shape> warp;
  if constexpr (Shape::kShares) {
    __syncthreads();
    hold_queries<Shape>(memory, warp);
  }
  const VisibleTiles visible(block, warp);
  Joined<Shape> joined;
  const bool works = warp.first_query < block.queries();
  const int first = seen.first / kTile, last = (seen.last - 1) / kTile;
  for (int tile = first; tile <= last; ++tile) {
    ptx::cp_async_wait<Shape::kAhead - 1>();
    __syncthreads();
    if (Shape::kStages > 1) loader.load_next();
    loader.clear_unseen_ends(tile);
    if constexpr (TileMemory<Shape>::kExpands) {
      expand_values<Shape>(memory, loader.stage(tile) + TileMemory<Shape>::kValuesAt, warp.offset);
      __syncthreads();
    }
    if (works) {
      use_tile<Shape>(block, visible, tile, memory, loader.stage(tile), warp);
      if (tile == last || tile % kSpanTiles == kSpanTiles - 1) {
        finish_span(a, plan, block, tile / kSpanTiles == first / kSpanTiles, tile == last, warp,
                    joined);
      }
    }
    if (Shape::kStages > 1) continue;
    __syncthreads();
    loader.load_next();
  }
  complete_queries<TensorJoin<Shape>>(a, plan, block);
}

inline constexpr int kSharedEverywhere = 99 << 10;  // shared memory of a block on the smallest GPUs
// The limit for generation, so that a multiprocessor has enough blocks to keep loads in flight; and
// for so few blocks that each multiprocessor has one or two, which then need more tiles in flight.
inline constexpr int kGenerationBytes = 56 << 10, kFewBlocksBytes = 113 << 10;

template <KvType type, int dims>
struct TensorShapes {
  // Returns the number of stages, 1 to `most`, that fit into `capacity` bytes beside the queries.
  template <class OneStage>
  static constexpr int stages(int most, int capacity) {
    const int stage = TileMemory<OneStage>::kStageBytes;
    const int others = TileMemory<OneStage>::kBytes - stage;
    while (most > 1 && most * stage + others > capacity) --most;
    return most;
  }
  // A warp reads a tile for 32 queries, or for 16 if the head has more than 128 columns. Above 64
  // columns two warps divide the outputs, because one warp's registers hold only half of them.
  static constexpr int kPromptTiles = dims <= 128 ? 2 : 1;
  static constexpr int kPromptColumns = dims <= 64 ? 1 : 2;
  static constexpr int kPromptRows = 4;
  template <int stages>
  using PromptOf = TensorShape<type, dims, kPromptRows, kPromptColumns, kPromptTiles, stages,
                               dims <= 64 ? 2 : 1>;
  using Prompt = PromptOf<stages<PromptOf<1>>(2, kSharedEverywhere)>;

  // 96 columns in four warps are no multiple of 16 per warp, so the head is padded to 128.
  static constexpr int kGenerationDims = dims == 96 ? 128 : dims;
  template <int stages>
  using GenerationOf =
      TensorShape<type, kGenerationDims, 1, 4, 1, stages, kGenerationDims <= 128 ? 3 : 2>;
  static constexpr int kFewStages = stages<GenerationOf<1>>(2, kSharedEverywhere);
  static constexpr int kMoreStages = stages<GenerationOf<1>>(3, kGenerationBytes);
  static constexpr int kStages = kMoreStages > kFewStages ? kMoreStages : kFewStages;
  using Generation = GenerationOf<kStages>;
  // More than the stages of a span are never in use.
  static constexpr int kDeepStages = stages<GenerationOf<1>>(kSpanTiles, kFewBlocksBytes);
  using Deep =
      std::conditional_t<(kDeepStages > kStages),
                         TensorShape<type, kGenerationDims, 1, 4, 1, kDeepStages, 2>, Generation>;
};

// Whether each multiprocessor has at most two blocks of generation, and room for the deep shape.
template <class Deep>
bool has_few_blocks(const AttentionArguments& a, const AttentionPlan& plan, rt::Stream& stream) {
  const rt::DeviceInfo& device = rt::device_of(stream);
  const std::int64_t rows =
      plan.which == AttentionRuns::single ? a.batch.run_count : a.batch.tokens;
  return rows * a.heads.kv_heads * (plan.split ? plan.spans : 1) <= 2 * device.multiprocessors &&
         TileMemory<Deep>::kBytes + 1024 <= static_cast<int>(device.shared_limit_bytes);
}

// Launches a kernel whose blocks have Shape::kQueries queries that share a kv head.
template <class Shape, class Kernel>
void launch_queries(const char* name, Kernel kernel, std::size_t shared_bytes,
                    const AttentionArguments& a, AttentionPlan plan, rt::Stream& stream) {
  const int group = a.heads.group;
  plan.block_heads = std::min(group, Shape::kQueries);
  plan.head_blocks = (group + plan.block_heads - 1) / plan.block_heads;
  const std::int64_t longest = plan.which == AttentionRuns::single ? 1 : a.batch.longest_run;
  plan.block_rows =
      static_cast<int>(std::min<std::int64_t>(Shape::kQueries / plan.block_heads, longest));
  const std::int64_t rows =
      plan.which == AttentionRuns::single ? a.batch.run_count : a.batch.tokens;
  if (plan.split) {
    plan.block_rows =
        static_cast<int>(std::min<std::int64_t>(plan.block_rows, rows_at_once(a, plan, rows)));
  }
  // The last block of each run may be only partly filled.
  const std::int64_t blocks = plan.which == AttentionRuns::single ? a.batch.run_count
                              : plan.block_rows == 1
                                  ? a.batch.tokens
                                  : a.batch.tokens / plan.block_rows + a.batch.run_count;
  static_assert(Shape::kQueries >= kFewestQueries);
  launch_in_parts(a, plan, rows, blocks, [&](const AttentionPlan& part, std::int64_t count) {
    rt::run(
        stream,
        {name, rt::grid(count, a.heads.kv_heads * part.head_blocks, part.split ? part.spans : 1),
         Shape::kThreads, shared_bytes, rt::Start::early},
        kernel, a, part);
  });
}

template <class Shape>
void launch_tensor(const char* name, const AttentionArguments& a, const AttentionPlan& plan,
                   rt::Stream& stream) {
  launch_queries<Shape>(name, attention_tensor<Shape>, TileMemory<Shape>::kBytes, a, plan, stream);
}

template <KvType type, int dims>
void launch_tensor(const AttentionArguments& a, const AttentionPlan& plan, rt::Stream& stream) {
  using Shapes = TensorShapes<type, dims>;
  // The prompt shape is faster if a block has more than half of its queries.
  const std::int64_t group = a.heads.group;
  const std::int64_t longest = plan.which == AttentionRuns::single ? 1 : a.batch.longest_run;
  if (longest * group > Shapes::Prompt::kQueries / 2) {
    launch_tensor<typename Shapes::Prompt>("attention_prompt", a, plan, stream);
  } else if (has_few_blocks<typename Shapes::Deep>(a, plan, stream)) {
    launch_tensor<typename Shapes::Deep>("attention_deep", a, plan, stream);
  } else {
    launch_tensor<typename Shapes::Generation>("attention_generation", a, plan, stream);
  }
}

template <KvType type>
void launch_tensor_attention(const AttentionArguments& a, const AttentionPlan& plan,
                             rt::Stream& stream) {
  const int dims = a.heads.head_dim;
  if (dims <= 64) return launch_tensor<type, 64>(a, plan, stream);
  if (dims <= 96) return launch_tensor<type, 96>(a, plan, stream);
  if (dims <= 128) return launch_tensor<type, 128>(a, plan, stream);
  launch_tensor<type, 256>(a, plan, stream);
}

}  // namespace leq::LEQ_GPU
