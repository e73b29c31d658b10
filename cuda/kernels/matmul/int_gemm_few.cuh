// Up to 64 tokens times a weight of few outputs, on the tensor cores: a block has 16 outputs only,
// so that 4,096 of them make 256 blocks, and its four warps take slabs of 128 columns in turn. Sums
// of whole rows are added at the end; of groups, in ascending order after every four slabs.
// Integers are exact and floats added in the order of int_gemm.cuh: the same bits.
#pragma once

#include "cuda/kernels/matmul/int_gemm.cuh"

namespace leq::LEQ_GPU {

// All of the tile is each warp's, kAlong of which share the columns.
template <int tokens>
struct FewShape {
  static constexpr int kTokens = tokens, kRows = 16, kStages = tokens <= 16 ? 4 : 3;
  static constexpr int kDown = 1, kAcross = 1, kAlong = 4;
  static constexpr int kThreads = 32 * kAlong;
  static constexpr int kMmaDown = tokens / 16, kMmaAcross = kRows / 8;
  static_assert(tokens % 16 == 0 && tokens <= 32 && kThreads == 8 * kRows);
};

// Stages of kAlong slabs each, what the groups of the warps' slabs need, and their sums.
template <class Shape, int bits, int group>
struct FewMemory {
  using Slab = GemmMemory<Shape, bits, group>;
  static constexpr int kStageBytes = Shape::kAlong * Slab::kStageBytes;
  static constexpr int kGroupsAt = Shape::kStages * kStageBytes;
  static constexpr int kSumsAt =
      kGroupsAt +
      (group == 0 ? 0 : Shape::kAlong * static_cast<int>(sizeof(typename Slab::Groups)));
  using Sums = int[Shape::kAlong][Shape::kTokens][Shape::kRows];
  static constexpr int kBytes = kSumsAt + static_cast<int>(sizeof(Sums));

  unsigned char* memory;

  __device__ __forceinline__ unsigned char* slab(int index) const {
    return memory + index / Shape::kAlong % Shape::kStages * kStageBytes +
           index % Shape::kAlong * Slab::kStageBytes;
  }
  __device__ __forceinline__ typename Slab::Groups& groups(int warp) const {
    return reinterpret_cast<typename Slab::Groups*>(memory + kGroupsAt)[warp];
  }
  __device__ __forceinline__ Sums& sums() const {
    return *reinterpret_cast<Sums*>(memory + kSumsAt);
  }
};

// Copies of a stage's rows, which lie one after the other in memory: piece
// p of a row's kAlong slabs is chunk p % chunks of slab p / chunks.
template <class Shape, int bits, int group>
struct FewCopies {
  using Memory = FewMemory<Shape, bits, group>;
  using Slab = typename Memory::Slab;
  const IntMatmul& a;
  const GemmRows<Shape>& rows;
  int slabs;

  // from(row): where its chunks of slab 0 lie, null where there is no such row.
  template <int count, int chunks, class From>
  __device__ __forceinline__ void copy(const Memory& memory, int first, int at, From from) const {
    constexpr int kPieces = Shape::kAlong * chunks;
#pragma unroll
    for (int i = 0; i < count * kPieces; i += Shape::kThreads) {
      const int piece = i + static_cast<int>(threadIdx.x);
      if (count * kPieces % Shape::kThreads != 0 && piece >= count * kPieces) break;
      const int row = piece / kPieces, slab = first + piece % kPieces / chunks;
      const std::byte* const begin = from(row);
      ptx::cp_async16(memory.slab(slab) + at + swizzled<chunks>(row, piece % chunks),
                      begin + (std::int64_t{first} * chunks + piece % kPieces) * 16,
                      begin != nullptr && slab < slabs);
    }
  }
  // The weights of slabs from `first` on.
  __device__ __forceinline__ void load_weights(const Memory& memory, int first) const {
    if (first >= slabs) return;
    copy<Shape::kRows, bits>(memory, first, Slab::kTokenBytes, [&](int row) {
      const CodeSegment& segment = rows.of(a, row);
      const int n = rows.first + rows.offset(row);
      const std::uint8_t* const begin =
          segment.weight.codes + std::int64_t{n} * slabs * (bits * 16);
      return n < segment.rows ? reinterpret_cast<const std::byte*>(begin) : nullptr;
    });
  }
  __device__ __forceinline__ void load_tokens(const Memory& memory, int first) const {
    if (first < slabs) {
      copy<Shape::kTokens, 8>(memory, first, 0, [&](int row) {
        const std::int64_t token = rows.first_token + row;
        return token < a.tokens
                   ? reinterpret_cast<const std::byte*>(a.x.codes + token * a.x.code_stride)
                   : nullptr;
      });
    }
    ptx::cp_async_commit();
  }
};

// The outputs of a thread: of tokens 16 apart, rows r and r + 8, which with swiglu are gate and up.
template <class Shape, int bits, int group>
struct FewOutputs {
  using Memory = FewMemory<Shape, bits, group>;
  static constexpr int kEach = Shape::kTokens / 16;
  ScaledSum totals[kEach][2];

  static __device__ __forceinline__ int token(int i) {
    return static_cast<int>(threadIdx.x) / 8 + 16 * i;
  }
  static __device__ __forceinline__ int row(int half) {
    return static_cast<int>(threadIdx.x) % 8 + 8 * half;
  }

  // Groups of `count` slabs, in ascending order.
  __device__ __forceinline__ void add(const Memory& memory, int count) {
    for (int slab = 0; slab < count; ++slab) {
      const auto& groups = memory.groups(slab);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int t = token(i), n = row(half), sum = memory.sums()[slab][t][n];
          totals[i][half].add(sum, groups.row_scale[0][LaneOrder<Shape>::row(n)] *
                                       groups.token_scale[0][LaneOrder<Shape>::token(t)]);
        }
      }
    }
  }
  // Sums of whole rows, less their zero points.
  __device__ __forceinline__ int whole(const IntMatmul& a, const CodeSegment& segment, int n,
                                       std::int64_t token, const Memory& memory, int i,
                                       int half) const {
    int sum = 0;
#pragma unroll
    for (int warp = 0; warp < Shape::kAlong; ++warp) {
      sum += memory.sums()[warp][this->token(i)][row(half)];
    }
    if (!has_unsigned_bytes(segment.weight)) return sum;
    return sum - (segment.weight.zeros[n] - 128) * a.x.sums[token * a.x.sum_stride];
  }

  __device__ __forceinline__ void finish_all(const IntMatmul& a, const GemmRows<Shape>& rows,
                                             const Memory& memory) const {
    const int n[2] = {rows.first + rows.offset(row(0)), rows.first + rows.offset(row(1))};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t at = rows.first_token + token(i);
      float y[2] = {0, 0};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const CodeSegment& segment = rows.of(a, row(half));
        if (at >= a.tokens || n[half] >= segment.rows) continue;
        if constexpr (group == 0) {
          const int sum = whole(a, segment, n[half], at, memory, i, half);
          y[half] = finished_sum(a, segment, n[half], at, static_cast<float>(sum));
        } else {
          y[half] = finished_sum(a, segment, n[half], at, totals[i][half].total);
        }
      }
      if (at >= a.tokens) continue;
      const std::int64_t column = rows.column + rows.offset(row(0));
      const int rows_there = static_cast<int>(rows.of(a, row(0)).rows);
      if (n[0] < rows_there) finish(a.finish, a.out, at, column, y[0], y[1]);
      if (rows.paired || n[1] >= rows_there) continue;
      finish(a.finish, a.out, at, column + 8, y[1], 0.0f);
    }
  }
};

// group: columns of one int32 sum, 128, or 0 for the row.
template <class Shape, int bits, int group>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    int_gemm_few(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(Shape::kThreads);
  static_assert(group == 0 || group == kSlab);
  using Memory = FewMemory<Shape, bits, group>;
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  const Memory memory = {dynamic};
  const Grouping grouping(a);
  const GemmRows<Shape> rows(a);
  const std::uint32_t flip = signed_flip<bits>(a);
  const int slabs = grouping.columns / kSlab, warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const FewCopies<Shape, bits, group> copies = {a, rows, slabs};
  constexpr int kAhead = (Shape::kStages - 1) * Shape::kAlong;  // slabs
  for (int slab = 0; slab < kAhead; slab += Shape::kAlong) copies.load_weights(memory, slab);
  ptx::wait_for_predecessor();
  for (int slab = 0; slab < kAhead; slab += Shape::kAlong) copies.load_tokens(memory, slab);
  using Groups = std::conditional_t<(group > 0), SlabGroups<Shape, bits, group, 32>, NoGroups>;
  [[maybe_unused]] Groups next(a, rows, lane);
  if constexpr (group > 0) {
    if (warp < slabs) next.load(warp);
  }
  WarpTile<Shape, bits, group> tile;
  FewOutputs<Shape, bits, group> outputs;
  tile.start(0);
  for (int first = 0; first < slabs; first += Shape::kAlong) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    // After it the slabs are there for all, the stage of those before is free, and their sums are
    // added.
    __syncthreads();
    copies.load_weights(memory, first + kAhead);
    copies.load_tokens(memory, first + kAhead);
    const int slab = first + warp;
    if (slab < slabs) {
      if constexpr (group > 0) {
        next.store(memory.groups(warp));
        __syncwarp();
        if (slab + Shape::kAlong < slabs) next.load(slab + Shape::kAlong);
      }
      multiply_slab<Shape, bits, group>(memory.slab(slab), flip, tile, [&](int g) {
        if (a.segments[0].weight.zeros != nullptr) tile.take_zeros(memory.groups(warp), g);
        tile.put_sums(memory.sums()[warp]);
      });
    }
    if constexpr (group > 0) {
      __syncthreads();
      outputs.add(memory, min(Shape::kAlong, slabs - first));
    }
  }
  ptx::let_successor_start();
  if constexpr (group == 0) {
    tile.put_sums(memory.sums()[warp]);
    __syncthreads();
  }
  outputs.finish_all(a, rows, memory);
}

}  // namespace leq::LEQ_GPU
