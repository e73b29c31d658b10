// Many tokens of f32 activations times 16-bit floats or codes on compute capability 9.0 (wgmma).
// One warpgroup loads tiles by TMA and two others multiply them; a block iterates over tiles of the
// output. Each output is the chain of float_gemm.cuh (docs/cuda-kernels.md).
#pragma once

#include "cuda/intrinsics/groups.cuh"
#include "cuda/kernels/matmul/float_weights.cuh"
#include "cuda/kernels/matmul/hopper_tiles.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"

namespace leq::LEQ_GPU {

// A stage's weights, which TMA loads as a box of all rows. Floats are 64 columns of 2 bytes. Codes
// have the layout of float_gemm; at 3 bits a box has 128 columns, which are 48 bytes, so that two
// stages load the same box.
template <class Weights>
struct WeightBox;
template <int terms>
struct WeightBox<HalfWeights<terms>> {
  static constexpr int kColumns = 64, kRowBytes = 128;

  template <int rows>
  struct Tile {
    // 16-byte chunks are in the order of Swizzle::bytes_128. A lane reads 8 bytes of each run of 16
    // columns.
    static __device__ __forceinline__ WeightQuad quad(const unsigned char* tile, int row, int run,
                                                      std::uint32_t, std::uint32_t) {
      const auto lane = static_cast<int>(threadIdx.x % 4);
      const auto both = *reinterpret_cast<const uint2*>(
          tile + swizzled<8>(row, run * 2 + lane / 2) + lane % 2 * 8);
      return {both.x, both.y};
    }
  };
};
template <int bits>
struct WeightBox<CodeWeights<bits>> {
  static constexpr int kColumns = bits == 3 ? 128 : 64, kRowBytes = kColumns * bits / 8;

  template <int rows>
  using Tile = typename CodeWeights<bits>::template Tile<rows, kColumns>;
};

// A tile of 128 tokens x 128 rows; each warpgroup has 64 of the rows. A stage has 64 columns in
// parts of 32; while one part is multiplied the next is unpacked.
template <class Weights_>
struct FloatHopperShape {
  using Weights = Weights_;
  using Box = WeightBox<Weights>;
  using Tile = typename Box::template Tile<128>;
  static constexpr int kTokens = 128, kRows = 128, kColumns = 64, kParts = kColumns / 32;
  static constexpr int kStagesOfBlock = kBlockColumns / kColumns;
  static constexpr int kTokenBoxes = kColumns * Weights::kTerms * 2 / kBoxBytes;
  static constexpr int kThreads = kHopperThreads;
  static constexpr int kScaleThreads = 64;   // threads of the loading warpgroup
  static constexpr int kSums = kTokens / 2;  // sums of a thread
};

// A stage has boxes of 128 bytes of all tokens, then the weights, then the scales and zero points
// of the groups of its parts.
template <class Shape>
struct FloatHopperMemory
    : StageMemory<Shape::kTokenBoxes * Shape::kTokens * kBoxBytes +
                      Shape::kRows * Shape::Box::kRowBytes,
                  Shape::Weights::kScaled
                      ? static_cast<int>(sizeof(GroupNumbers)) * Shape::kParts * Shape::kRows
                      : 0> {
  using FloatHopperMemory::StageMemory::StageMemory;
  using Groups = GroupNumbers[Shape::kParts][Shape::kRows];
  static constexpr int kTokenBoxBytes = Shape::kTokens * kBoxBytes;

  __device__ __forceinline__ unsigned char* tokens(int stage, int box) const {
    return this->stage(stage) + box * kTokenBoxBytes;
  }
  __device__ __forceinline__ unsigned char* weights(int stage) const {
    return tokens(stage, Shape::kTokenBoxes);
  }
  __device__ __forceinline__ Groups& groups(int stage) const {
    return *reinterpret_cast<Groups*>(this->group_bytes(stage));
  }
  __device__ __forceinline__ void init() const {
    this->init_barriers(1 + (Shape::Weights::kScaled ? Shape::kScaleThreads : 0));
  }
};

// One thread loads all tiles of the block, in stages of Shape::kColumns columns.
template <class Shape, class Arguments>
__device__ __forceinline__ void load_float_tiles(const Arguments& a, const HopperMaps& maps,
                                                 const FloatHopperMemory<Shape>& memory,
                                                 int columns) {
  using Memory = FloatHopperMemory<Shape>;
  using Box = typename Shape::Box;
  Ring<Memory::kStages> ring;
  const TileSchedule schedule(maps);
  for (int tile = schedule.first; tile < schedule.end; tile += schedule.step) {
    const auto rows = maps.rows<Shape>(a, tile);
    const int first_token = static_cast<int>(rows.first_token);
    for (int column = 0; column < columns; column += Shape::kColumns, ring.next()) {
      ptx::Barrier& full = memory.full(ring.stage);
      ptx::barrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
      ptx::barrier_expect(full, Memory::kStageBytes);
      const int first_box = column / Shape::kColumns * Shape::kTokenBoxes;
#pragma unroll
      for (int box = 0; box < Shape::kTokenBoxes; ++box) {
        load_tokens<Shape>(maps.tokens, (first_box + box) * kBoxBytes, first_token,
                           memory.tokens(ring.stage, box), full);
      }
      load_rows(rows, maps.weights, column / Box::kColumns * Box::kRowBytes, Box::kRowBytes,
                memory.weights(ring.stage), full);
    }
  }
}

// Scales and zero points of two rows, in stored form, in transit to shared memory.
template <class Shape>
struct StageGroups {
  using Weights = typename Shape::Weights;
  static constexpr int kEach = Shape::kRows / Shape::kScaleThreads;
  std::uint32_t stored[kEach][Shape::kParts];

  // Loads the stage at `column`. A part that begins no group repeats the preceding part's numbers.
  template <class Arguments, class Rows>
  __device__ __forceinline__ void load(const Arguments& a, const Rows& rows, int column,
                                       const Folding& folding, int thread) {
    const int shift = group_shift(folding.columns);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = thread + i * Shape::kScaleThreads, row = rows.first + rows.offset(n);
      const auto& segment = rows.of(a, n);
#pragma unroll
      for (int part = 0; part < Shape::kParts; ++part) {
        const int at = column + part * 32;
        stored[i][part] = stored[i][(part + Shape::kParts - 1) % Shape::kParts];
        if (!folding.begins_at(at)) continue;
        stored[i][part] = 0;
        if (row >= segment.rows) continue;
        const std::int64_t group =
            folding.of_row == 0 ? row : std::int64_t{row} * folding.of_row + (at >> shift);
        stored[i][part] = Weights::stored_group(segment.weight, group);
      }
    }
  }
  template <class Arguments, class Rows>
  __device__ __forceinline__ void store(const Arguments& a, const Rows& rows,
                                        typename FloatHopperMemory<Shape>::Groups& to,
                                        int thread) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = thread + i * Shape::kScaleThreads;
#pragma unroll
      for (int part = 0; part < Shape::kParts; ++part) {
        to[part][n] = Weights::group_numbers(rows.of(a, n).weight, stored[i][part]);
      }
    }
  }
};

// Loads the groups' scales and zero points for all stages; kScaleThreads threads run this function.
template <class Shape, class Arguments>
__device__ __forceinline__ void load_groups(const Arguments& a, const HopperMaps& maps,
                                            const FloatHopperMemory<Shape>& memory, int columns,
                                            int thread) {
  Ring<FloatHopperMemory<Shape>::kStages> ring;
  const Folding folding = Shape::Weights::folding(a);
  const TileSchedule schedule(maps);
  for (int tile = schedule.first; tile < schedule.end; tile += schedule.step) {
    const auto rows = maps.rows<Shape>(a, tile);
    StageGroups<Shape> next = {};
    next.load(a, rows, 0, folding, thread);
    for (int column = 0; column < columns; column += Shape::kColumns, ring.next()) {
      ptx::barrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
      next.store(a, rows, memory.groups(ring.stage), thread);
      ptx::barrier_arrive(memory.full(ring.stage));
      if (column + Shape::kColumns < columns) {
        next.load(a, rows, column + Shape::kColumns, folding, thread);
      }
    }
  }
}

// The sums of one warpgroup: 64 rows x 128 tokens. Number i of a thread has
// row `row` + 8 (i / 2 % 2) and token 8 (i / 4) + 2 (lane % 4) + i % 2.
template <class Shape>
struct FloatWarpgroupTile {
  using Memory = FloatHopperMemory<Shape>;
  using Weights = typename Shape::Weights;
  float sums[Shape::kSums], totals[Shape::kSums];
  // Operand A of the current part and of the next part, 16 columns per step, and their groups.
  std::uint32_t w[2][2][4];
  GroupNumbers numbers[2][2];
  int lane, warp;  // warp: index among the warps that multiply
  // Within each eight rows, neighbouring lanes have rows two apart, so that their floats are in
  // different banks. Any order of the rows is valid.
  int row;

  __device__ __forceinline__ FloatWarpgroupTile()
      : lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32) - 4),
        row(ptx::opaque(static_cast<unsigned>(warp * 16 + lane / 4 % 4 * 2 + lane / 16))) {}

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) totals[i] = 0;
  }

  // Unpacks 32 columns: part `part` of a stage, which is half `half` of a block of 128 columns.
  __device__ __forceinline__ void fetch(const Memory& memory, int stage, int half, int part,
                                        std::uint32_t flip) {
    std::uint32_t offsets[2] = {};
    if constexpr (Weights::kScaled) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        numbers[part % 2][i] = memory.groups(stage)[part][row + i * 8];
        offsets[i] = numbers[part % 2][i].offset;
      }
    }
    const int in_box = half * Shape::kParts % (Shape::Box::kColumns / 32) + part;
    load_operand<Weights, typename Shape::Tile>(memory.weights(stage), row, in_box, flip, offsets,
                                                w[part % 2]);
  }

  // Starts multiplying a part; if `add`, accumulates onto the existing sums.
  __device__ __forceinline__ void multiply(const Memory& memory, int stage, int part, bool add) {
    const std::uint64_t tokens = ptx::matrix_operand(memory.tokens(stage, 0));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int term = 0; term < Weights::kTerms; ++term) {
        const int at = (part * Weights::kTerms + term) * 64 + step * 32;  // byte offset in a token
        const int box = at / kBoxBytes * (Memory::kTokenBoxBytes / 32);
        const std::uint64_t x = ptx::next_columns(tokens, box + at % kBoxBytes / 32);
        const bool adds = add || step > 0 || term > 0;
        if constexpr (Weights::kTerms == 2) {
          ptx::wgmma_f16(sums, w[part % 2][step], x, adds);
        } else {
          ptx::wgmma_bf16(sums, w[part % 2][step], x, adds);
        }
      }
    }
    ptx::wgmma_commit();
  }

  // Ends the group of `part`: adds its scaled sums to the totals.
  __device__ __forceinline__ void fold(int part) {
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) {
      const float scale = Weights::kScaled ? numbers[part % 2][i / 2 % 2].scale : 1.0f;
      totals[i] = fmaf(sums[i], scale, totals[i]);
    }
  }

  // Writes the totals, 32 tokens at a time, through shared memory, so that neighbouring lanes write
  // neighbouring columns. A loop keeps the code small enough for the instruction cache.
  template <class Arguments, class Rows>
  __device__ __forceinline__ void finish_all(const Arguments& a, const Rows& rows,
                                             float* out) const {
#pragma unroll 1
    for (int first = 0; first < Shape::kTokens; first += Memory::kOutTokens) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) {
        if (i / 16 != first / 32) continue;  // because register indices must be constants
        const int token = i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
        out[token * Memory::kOutStride + row % 16 + i / 2 % 2 * 8] = totals[i];
      }
      __syncwarp();
      finish_some(a, rows, first, out);
    }
  }

  template <class Arguments, class Rows>
  __device__ __forceinline__ void finish_some(const Arguments& a, const Rows& rows, int first,
                                              const float* out) const {
    const int width = rows.paired ? 8 : Memory::kOutRows;  // divides 32: a lane keeps its row
    const int column = lane % width, tile_row = warp * 16 + column;
    const int n = rows.first + rows.offset(tile_row);
    const auto& segment = rows.of(a, tile_row);
    if (n >= segment.rows) return;
    const auto& other = rows.paired ? a.segments[1] : segment;
    const FloatRowFinish<Weights> of_row(segment, n), of_up(other, n);
    const int step = 32 / width;
    const std::int64_t to = rows.column + rows.offset(tile_row);
    // Processes four tokens at a time: all reads of these precede the writes.
    constexpr int kTogether = 4;
#pragma unroll 1
    for (int t = lane / width; t < Memory::kOutTokens; t += kTogether * step) {
      float2 scales[kTogether];
      float before[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t token = min(rows.first_token + first + t + i * step, a.tokens - 1);
        scales[i] = {a.x.scales[token * 2], a.x.scales[token * 2 + 1]};
        before[i] = a.finish == Finish::add ? a.out.values[token * a.out.stride + to] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t token = rows.first_token + first + t + i * step;
        if (token >= a.tokens) break;
        const float* const at = out + (t + i * step) * Memory::kOutStride + column;
        const float y = of_row.value(scales[i], at[0]);
        const float up = rows.paired ? of_up.value(scales[i], at[8]) : 0.0f;
        a.out.values[token * a.out.stride + to] = finished(a.finish, y, up, before[i]);
      }
    }
  }
};

// Multiplies a block of 128 columns. While a part is multiplied the next part is unpacked, even if
// it is in the next stage; `more` is true if another block follows.
template <class Shape>
__device__ __forceinline__ void multiply_block(FloatWarpgroupTile<Shape>& tile,
                                               const FloatHopperMemory<Shape>& memory,
                                               Ring<FloatHopperMemory<Shape>::kStages>& ring,
                                               const Folding& folding, std::uint32_t flip,
                                               bool more) {
  int before = 0;  // the stage whose last part may still be in flight
#pragma unroll
  for (int half = 0; half < Shape::kStagesOfBlock; ++half) {
    const int stage = ring.stage;
    ring.next();
#pragma unroll
    for (int part = 0; part < Shape::kParts; ++part) {
      const int column = half * Shape::kColumns + part * 32;
      tile.multiply(memory, stage, part, !folding.begins_at(column));
      // Waits until the preceding part is finished.
      ptx::wgmma_wait<1>();
      if (half > 0 && part == 0) memory.release(before);
      if (part + 1 < Shape::kParts) {
        tile.fetch(memory, stage, half, part + 1, flip);
      } else if (half + 1 < Shape::kStagesOfBlock || more) {
        ptx::barrier_wait(memory.full(ring.stage), ring.parity);
        tile.fetch(memory, ring.stage, (half + 1) % Shape::kStagesOfBlock, 0, flip);
      }
      // A group ends at the latest at the end of the block.
      if (column + 32 < kBlockColumns && !folding.begins_at(column + 32)) continue;
      ptx::wgmma_finish(tile.sums);
      tile.fold(part);
    }
    before = stage;
  }
  memory.release(before);
}

// Two warpgroups run this function: they multiply the stages of all tiles of the block.
template <class Shape, class Arguments>
__device__ __forceinline__ void multiply_float_tiles(const Arguments& a, const HopperMaps& maps,
                                                     const FloatHopperMemory<Shape>& memory,
                                                     int blocks) {
  Ring<FloatHopperMemory<Shape>::kStages> ring;
  FloatWarpgroupTile<Shape> tile;
  const Folding folding = Shape::Weights::folding(a);
  const std::uint32_t flip = Shape::Weights::flip(a);
  const TileSchedule schedule(maps);
  if (schedule.first >= schedule.end) return;
  ptx::barrier_wait(memory.full(0), 0);
  tile.fetch(memory, 0, 0, 0, flip);
  for (int i = schedule.first; i < schedule.end; i += schedule.step) {
    tile.start();
    const bool last = i + schedule.step >= schedule.end;
    for (int block = 0; block < blocks; ++block) {
      multiply_block<Shape>(tile, memory, ring, folding, flip, !last || block + 1 < blocks);
    }
    tile.finish_all(a, maps.rows<Shape>(a, i), reinterpret_cast<float*>(memory.out(tile.warp)));
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    float_gemm_wgmma(const LEQ_GRID_CONSTANT typename Shape::Weights::Arguments a,
                     const LEQ_GRID_CONSTANT HopperMaps maps) {
  LEQ_BOUNDS(Shape::kThreads);
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    const FloatHopperMemory<Shape> memory(dynamic);
    if (threadIdx.x == 0) memory.init();
    ptx::sync_cluster();
    const auto columns = static_cast<int>(padded_columns(a.columns));
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < 4) {
      ptx::keep_registers<56>();
      if (threadIdx.x == 0) load_float_tiles(a, maps, memory, columns);
      if constexpr (Shape::Weights::kScaled) {
        if (warp >= 2) {
          load_groups(a, maps, memory, columns, static_cast<int>(threadIdx.x) - 64);
        }
      }
    } else {
      ptx::take_registers<224>();
      multiply_float_tiles(a, maps, memory, columns / kBlockColumns);
    }
    // The other block of the cluster may access this block's shared memory until it has finished.
    ptx::sync_cluster();
  } else {
    ptx::wrong_architecture();
  }
}

}  // namespace leq::LEQ_GPU
