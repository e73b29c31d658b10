// Launches of tensor-core matmuls, and the kernel for up to 64 tokens times a weight of few
// outputs. A block of int_gemm_few has only 16 outputs, so that 4,096 outputs make 256 blocks, and
// its four warps take K tiles of 128 columns in turn. Sums of whole rows are added at the end; sums
// of groups are added after every four K tiles, in ascending order. All tiles add in the order of
// int_gemm.cuh, so the choice of a tile does not change results.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_gemm.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {

// Each warp computes the whole tile for its share of the columns; kAlong warps divide these.
template <int tokens>
struct FewShape {
  static constexpr int kTokens = tokens, kRows = 16, kStages = tokens <= 16 ? 4 : 3;
  static constexpr int kDown = 1, kAcross = 1, kAlong = 4;
  static constexpr int kThreads = 32 * kAlong;
  static constexpr int kMmaDown = tokens / 16, kMmaAcross = kRows / 8;
  static_assert(tokens % 16 == 0 && tokens <= 32 && kThreads == 8 * kRows);
};

// Stages of kAlong K tiles each, then the group data of each warp's K tile, then the warps' sums.
template <class Shape, int bits, int group>
struct FewMemory {
  using KTile = GemmMemory<Shape, bits, group>;
  static constexpr int kStageBytes = Shape::kAlong * KTile::kStageBytes;
  static constexpr int kGroupsAt = Shape::kStages * kStageBytes;
  static constexpr int kSumsAt =
      kGroupsAt +
      (group == 0 ? 0 : Shape::kAlong * static_cast<int>(sizeof(typename KTile::Groups)));
  using Sums = int[Shape::kAlong][Shape::kTokens][Shape::kRows];
  static constexpr int kBytes = kSumsAt + static_cast<int>(sizeof(Sums));

  unsigned char* memory;

  __device__ __forceinline__ unsigned char* k_tile(int index) const {
    return memory + index / Shape::kAlong % Shape::kStages * kStageBytes +
           index % Shape::kAlong * KTile::kStageBytes;
  }
  __device__ __forceinline__ typename KTile::Groups& groups(int warp) const {
    return reinterpret_cast<typename KTile::Groups*>(memory + kGroupsAt)[warp];
  }
  __device__ __forceinline__ Sums& sums() const {
    return *reinterpret_cast<Sums*>(memory + kSumsAt);
  }
};

// Copies a stage's rows. A row's kAlong K tiles are contiguous in memory: their chunk p is
// chunk p % chunks of K tile p / chunks.
template <class Shape, int bits, int group>
struct FewCopies {
  using Memory = FewMemory<Shape, bits, group>;
  using KTile = typename Memory::KTile;
  const IntMatmul& a;
  const GemmRows<Shape>& rows;
  int k_tiles;

  // from(row) is the row's address in K tile 0, or null if the row does not exist.
  template <int count, int chunks, class From>
  __device__ __forceinline__ void copy(const Memory& memory, int first, int at, From from) const {
    constexpr int kChunks = Shape::kAlong * chunks;
#pragma unroll
    for (int i = 0; i < count * kChunks; i += Shape::kThreads) {
      const int chunk = i + static_cast<int>(threadIdx.x);
      if (count * kChunks % Shape::kThreads != 0 && chunk >= count * kChunks) break;
      const int row = chunk / kChunks, k_tile = first + chunk % kChunks / chunks;
      const std::byte* const begin = from(row);
      ptx::cp_async16(memory.k_tile(k_tile) + at + swizzled<chunks>(row, chunk % chunks),
                      begin + (std::int64_t{first} * chunks + chunk % kChunks) * 16,
                      begin != nullptr && k_tile < k_tiles);
    }
  }
  // Loads the weights of kAlong K tiles from `first` on.
  __device__ __forceinline__ void load_weights(const Memory& memory, int first) const {
    if (first >= k_tiles) return;
    copy<Shape::kRows, bits>(memory, first, KTile::kTokenBytes, [&](int row) {
      const CodeSegment& segment = rows.of(a, row);
      const int n = rows.first + rows.offset(row);
      const std::uint8_t* const begin =
          segment.weight.codes + std::int64_t{n} * k_tiles * (bits * 16);
      return n < segment.rows ? reinterpret_cast<const std::byte*>(begin) : nullptr;
    });
  }
  __device__ __forceinline__ void load_tokens(const Memory& memory, int first) const {
    if (first < k_tiles) {
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

// A thread's outputs: tokens 16 apart, rows r and r + 8 (if gated one of gate and one of up).
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

  // Adds the groups of `count` K tiles in ascending order.
  __device__ __forceinline__ void add(const Memory& memory, int count) {
    for (int k_tile = 0; k_tile < count; ++k_tile) {
      const auto& groups = memory.groups(k_tile);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int t = token(i), n = row(half), sum = memory.sums()[k_tile][t][n];
          totals[i][half].add(sum, groups.row_scale[0][LaneOrder<Shape>::row(n)] *
                                       groups.token_scale[0][LaneOrder<Shape>::token(t)]);
        }
      }
    }
  }
  // A sum over the whole row, less what its zero point contributes.
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

// group is the number of columns of one int32 sum: 128, or 0 for the whole row.
template <class Shape, int bits, int group>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    int_gemm_few(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(Shape::kThreads);
  static_assert(group == 0 || group == kKTile);
  using Memory = FewMemory<Shape, bits, group>;
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  const Memory memory = {dynamic};
  const Grouping grouping(a);
  const GemmRows<Shape> rows(a);
  const std::uint32_t flip = signed_flip<bits>(a);
  const int k_tiles = grouping.columns / kKTile, warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const FewCopies<Shape, bits, group> copies = {a, rows, k_tiles};
  constexpr int kAhead = (Shape::kStages - 1) * Shape::kAlong;  // K tiles in flight
  for (int k_tile = 0; k_tile < kAhead; k_tile += Shape::kAlong)
    copies.load_weights(memory, k_tile);
  ptx::wait_for_predecessor();
  for (int k_tile = 0; k_tile < kAhead; k_tile += Shape::kAlong) copies.load_tokens(memory, k_tile);
  using Groups = std::conditional_t<(group > 0), KTileGroups<Shape, bits, group, 32>, NoGroups>;
  [[maybe_unused]] Groups next(a, rows, lane);
  if constexpr (group > 0) {
    if (warp < k_tiles) next.load(warp);
  }
  WarpTile<Shape, bits, group> tile;
  FewOutputs<Shape, bits, group> outputs;
  tile.start(0);
  for (int first = 0; first < k_tiles; first += Shape::kAlong) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    // Makes the K tiles visible to all threads. The preceding stage is then free, and its sums have
    // been added.
    __syncthreads();
    copies.load_weights(memory, first + kAhead);
    copies.load_tokens(memory, first + kAhead);
    const int k_tile = first + warp;
    if (k_tile < k_tiles) {
      if constexpr (group > 0) {
        next.store(memory.groups(warp));
        __syncwarp();
        if (k_tile + Shape::kAlong < k_tiles) next.load(k_tile + Shape::kAlong);
      }
      multiply_k_tile<Shape, bits, group>(memory.k_tile(k_tile), flip, tile, [&](int g) {
        if (a.segments[0].weight.zeros != nullptr) tile.take_zeros(memory.groups(warp), g);
        tile.put_sums(memory.sums()[warp]);
      });
    }
    if constexpr (group > 0) {
      __syncthreads();
      outputs.add(memory, min(Shape::kAlong, k_tiles - first));
    }
  }
  ptx::let_successor_start();
  if constexpr (group == 0) {
    tile.put_sums(memory.sums()[warp]);
    __syncthreads();
  }
  outputs.finish_all(a, rows, memory);
}

namespace {

template <class Shape, int bits, int group>
void launch_gemm(const IntMatmul& a, rt::Stream& stream) {
  rt::run(stream,
          {"int_gemm", tiles_of<Shape>(a), Shape::kThreads, GemmMemory<Shape, bits, group>::kBytes,
           rt::Start::early},
          int_gemm<Shape, bits, group>, a);
}

template <class Shape, int bits, int group>
void launch_few(const IntMatmul& a, rt::Stream& stream) {
  rt::run(stream,
          {"int_gemm_few", tiles_of<Shape>(a), Shape::kThreads,
           FewMemory<Shape, bits, group>::kBytes, rt::Start::early},
          int_gemm_few<Shape, bits, group>, a);
}

template <int bits, int group>
void launch_tile(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  if (tile == GemmTile::few) {
    // With groups, int_gemv_tokens has up to 16 tokens of few outputs.
    if constexpr (group == 0) {
      if (a.tokens <= 16) return launch_few<FewShape<16>, bits, group>(a, stream);
    }
    return launch_few<FewShape<32>, bits, group>(a, stream);
  }
  if (tile == GemmTile::small) return launch_gemm<SmallTile, bits, group>(a, stream);
  if (tile == GemmTile::middle) return launch_gemm<MiddleTile, bits, group>(a, stream);
  launch_gemm<LargeTile, bits, group>(a, stream);
}

}  // namespace

void launch_int_gemm(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  launch_by_codes(a.segments[0].weight, [&]<int bits>() {
    const int group = sum_columns(a);
    if constexpr (bits == 8 || bits == kTableBits) {
      if (group == 16) return launch_gemm<MiddleTile, bits, 16>(a, stream);
    }
    if (group == 32) return launch_gemm<MiddleTile, bits, 32>(a, stream);
    if constexpr (bits != kTableBits) {  // which have groups of at most 32 columns
      if (group == 64) return launch_gemm<MiddleTile, bits, 64>(a, stream);
      if (group == 128) return launch_tile<bits, 128>(a, tile, stream);
    }
    // Codes of fewer than 8 bits always have groups.
    if constexpr (bits == 8) launch_tile<bits, 0>(a, tile, stream);
  });
}

}  // namespace leq::LEQ_GPU
