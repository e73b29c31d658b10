// Many tokens times a weight of 8, 4, 3 or 2 bits on the tensor cores (mma.m16n8k32): a block
// computes a tile of tokens x outputs, slab of 128 columns by slab, which cp.async brings ahead
// (docs/cuda.md).
#pragma once

#include "cuda/kernels/matmul/gemm_rows.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/packed_codes.cuh"
#include "cuda/words/reduce.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kSlab = 128;  // columns

// A tile of kTokens x kRows, cut between kWarpsDown x kWarpsAcross warps. With swiglu half of the
// rows are of gate and half of up, eight and eight in turn.
template <int tokens, int rows, int warps_down, int warps_across, int stages>
struct GemmShape {
  static constexpr int kTokens = tokens, kRows = rows, kStages = stages;
  static constexpr int kDown = warps_down, kAcross = warps_across;
  static constexpr int kThreads = 32 * warps_down * warps_across;
  static constexpr int kMmaDown = tokens / warps_down / 16;  // of a warp
  static constexpr int kMmaAcross = rows / warps_across / 8;
  static_assert(kMmaDown >= 1 && kMmaAcross % 2 == 0 && kThreads >= rows && kThreads >= tokens);
};

// Shared memory of a kernel: stages of a slab's tokens and codes, then two sets of what the groups
// of a slab need.
template <class Shape, int bits, int group>
struct GemmMemory {
  static constexpr int kTokenBytes = Shape::kTokens * kSlab;
  static constexpr int kStageBytes = kTokenBytes + Shape::kRows * bits * 16;
  static constexpr int kGroups = group == 0 ? 0 : kSlab / group;
  // Codes below 8 bits are multiplied as signed bytes, so many times as large (packed_codes.cuh).
  static constexpr int kFactor = kSignedFactor<bits>, kMiddle = bits == 8 ? 0 : 1 << (bits - 1);
  // Zero points, times kFactor, and sums of at most 128 codes fit into 16 bits. Scales over
  // kFactor.
  struct Groups {
    float row_scale[kGroups > 0 ? kGroups : 1][Shape::kRows];
    float token_scale[Shape::kTokens];
    std::int16_t zero[kGroups > 0 ? kGroups : 1][Shape::kRows];
    std::int16_t token_sum[kGroups > 0 ? kGroups : 1][Shape::kTokens];
  };
  static constexpr int kBytes =
      Shape::kStages * kStageBytes + (group == 0 ? 0 : 2 * static_cast<int>(sizeof(Groups)));
};

// A thread's share of the copies of slabs, one slab after the other: 16 bytes of kEach rows, so
// many apart that they are swizzled alike. All addresses are one pointer, that moves on, and
// constants.
template <int rows, int chunks, int threads>
struct RowCopies {
  // Of three chunks a quarter of the threads has none.
  static constexpr int kStep = chunks == 3 ? threads / 4 : threads / chunks, kEach = rows / kStep;
  static_assert(kStep * kEach == rows && kStep % 16 == 0 && kEach <= 8);
  const std::byte* from = nullptr;
  int step_bytes = 0;  // in memory
  unsigned valid = 0;  // bit i: row i is there

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x / chunks); }
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x % chunks); }

  // What is not there is not read, wherever its address points.
  __device__ __forceinline__ void load(unsigned char* to) {
    if (kStep * chunks < threads && threadIdx.x >= kStep * chunks) return;
    to += swizzled<chunks>(row(), chunk());
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      ptx::cp_async16(to + i * kStep * chunks * 16, from + std::int64_t{i} * step_bytes,
                      (valid >> i & 1u) != 0);
    }
    from += chunks * 16;
  }
};

template <class Shape>
struct TokenCopies : RowCopies<Shape::kTokens, 8, Shape::kThreads> {
  __device__ __forceinline__ TokenCopies(const IntMatmul& a, const GemmRows<Shape>& rows) {
    const std::int64_t first = rows.first_token + this->row();
    const auto stride = static_cast<int>(a.x.code_stride);
    this->from =
        reinterpret_cast<const std::byte*>(a.x.codes) + first * stride + this->chunk() * 16;
    this->step_bytes = this->kStep * stride;
#pragma unroll
    for (int i = 0; i < this->kEach; ++i) {
      this->valid |= (first + i * this->kStep < a.tokens ? 1u : 0u) << i;
    }
  }
};

template <class Shape, int bits>
struct CodeCopies : RowCopies<Shape::kRows, bits, Shape::kThreads> {
  __device__ __forceinline__ CodeCopies(const IntMatmul& a, const GemmRows<Shape>& rows,
                                        int slabs) {
    const CodeSegment& segment = rows.of(a, this->row());
    const int first = rows.first + rows.offset(this->row()), row_bytes = slabs * (bits * 16);
    // 16 rows of a tile are eight of each segment with swiglu.
    const int step = rows.paired ? this->kStep / 2 : this->kStep;
    this->from = reinterpret_cast<const std::byte*>(segment.weight.codes) +
                 std::int64_t{first} * row_bytes + this->chunk() * 16;
    this->step_bytes = step * row_bytes;
#pragma unroll
    for (int i = 0; i < this->kEach; ++i) {
      this->valid |= (first + i * step < segment.rows ? 1u : 0u) << i;
    }
  }
};

// The codes of a warp's rows in one slab, as they lie in memory: word t of each 16 bytes.
template <class Shape, int bits>
struct SlabCodes {
  static constexpr int kAcross = Shape::kMmaAcross;
  // 8 bits: the two chunks of one step; fewer: all of the slab.
  static constexpr int kHeld = bits == 8 ? 2 : bits;
  std::uint32_t words[kAcross][kHeld];

  // Chunks from `first` on; `row` is the warp's first in the tile.
  __device__ __forceinline__ void load(const unsigned char* codes, int row, int first) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int kTiles = 4 / kHeld;  // of eight rows in one ldmatrix
#pragma unroll
    for (int j = 0; j < kAcross; j += kTiles) {
      const int n = row + (j + lane / 8 / kHeld) * 8 + lane % 8;
      std::uint32_t found[4];
      ptx::ldmatrix_x4(found, codes + swizzled<bits>(n, first + lane / 8 % kHeld));
#pragma unroll
      for (int i = 0; i < 4; ++i) words[j + i / kHeld][i % kHeld] = found[i];
    }
  }
  // Three chunks: that of all rows, then the next, so that what a lane reads lies constants apart.
  __device__ __forceinline__ void load_three(const unsigned char* codes, int row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int kMatrices = kAcross * 3;
#pragma unroll
    for (int j = 0; j < kMatrices; j += 4) {
      const int matrix = min(j + lane / 8, kMatrices - 1);
      const int n = row + matrix % kAcross * 8 + lane % 8;
      std::uint32_t found[4];
      ptx::ldmatrix_x4(found, codes + swizzled<bits>(n, matrix / kAcross));
#pragma unroll
      for (int i = j; i < j + 4 && i < kMatrices; ++i) {
        words[i % kAcross][i / kAcross] = found[i - j];
      }
    }
  }

  // Columns 32 step ... of the slab: the second operand of the mma across j.
  __device__ __forceinline__ void operand(int j, int step, std::uint32_t flip,
                                          std::uint32_t (&b)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (bits == 8) {
        b[half] = words[j][half] ^ flip;
      } else {
        b[half] = slab_quad<bits>(words[j], step * 2 + half, flip);
      }
    }
  }
};

// Scales, zero points and sums of a slab's groups, on their way from global to shared memory:
// thread number `thread` brings those of one row and of one token.
template <class Shape, int bits, int group>
struct SlabGroups {
  using Memory = GemmMemory<Shape, bits, group>;
  RowGroup row[Memory::kGroups] = {};
  float token_scale = 0;
  int token_sum[Memory::kGroups] = {};

  __device__ __forceinline__ void load(const IntMatmul& a, const Grouping& grouping,
                                       const GemmRows<Shape>& rows, int slab, int thread) {
    const CodeSegment& segment = rows.of(a, thread);
    const int n = rows.first + rows.offset(thread);
    const std::int64_t token = rows.first_token + thread;
    const bool has_row = thread < Shape::kRows && n < segment.rows;
    const bool has_token = thread < Shape::kTokens && token < a.tokens;
    token_scale = has_token && a.x.group > 0 ? a.x.scales[token * a.x.scale_stride + slab] : 1.0f;
#pragma unroll
    for (int g = 0; g < Memory::kGroups; ++g) {
      row[g] = {0.0f, 0};
      if (has_row) row[g] = row_group(segment.weight, grouping, n, slab * kSlab + g * group);
      token_sum[g] = 0;
      if (has_token && a.x.sums != nullptr) {
        token_sum[g] = a.x.sums[token * a.x.sum_stride + slab * Memory::kGroups + g];
      }
    }
  }
  __device__ __forceinline__ void store(typename Memory::Groups& to, int thread) const {
    if (thread < Shape::kTokens) to.token_scale[thread] = token_scale;
#pragma unroll
    for (int g = 0; g < Memory::kGroups; ++g) {
      if (thread < Shape::kRows) {
        to.row_scale[g][thread] = row[g].scale * (1.0f / Memory::kFactor);
        to.zero[g][thread] =
            static_cast<std::int16_t>((row[g].zero - Memory::kMiddle) * Memory::kFactor);
      }
      if (thread < Shape::kTokens) {
        to.token_sum[g][thread] = static_cast<std::int16_t>(token_sum[g]);
      }
    }
  }
};

// The sums of one warp. Number i of an mma tile: token lane / 4 + 8 (i / 2), row
// 2 (lane % 4) + i % 2.
template <class Shape, int bits, int group, class Sum>
struct WarpTile {
  using Memory = GemmMemory<Shape, bits, group>;
  static constexpr int kDown = Shape::kMmaDown, kAcross = Shape::kMmaAcross;
  int sums[kDown][kAcross][4];
  Sum totals[group == 0 ? 1 : kDown][group == 0 ? 1 : kAcross][4];
  int first_token, first_row;  // of the warp, in the block's tile

  __device__ __forceinline__ WarpTile() {
    const int warp = static_cast<int>(threadIdx.x / 32) % (Shape::kDown * Shape::kAcross);
    first_token = warp / Shape::kAcross * kDown * 16;
    first_row = warp % Shape::kAcross * kAcross * 8;
  }
  __device__ __forceinline__ int token(int down, int i) const {
    return first_token + down * 16 + static_cast<int>(threadIdx.x % 32) / 4 + i / 2 * 8;
  }
  __device__ __forceinline__ int row(int across, int i) const {
    return first_row + across * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
  }

  __device__ __forceinline__ void start(int value) {
#pragma unroll
    for (int down = 0; down < kDown; ++down) {
#pragma unroll
      for (int across = 0; across < kAcross; ++across) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[down][across][i] = value;
      }
    }
  }
  // One step of 32 columns.
  __device__ __forceinline__ void multiply(const unsigned char* stage,
                                           const SlabCodes<Shape, bits>& codes, int step,
                                           std::uint32_t flip) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    std::uint32_t x[kDown][4];
#pragma unroll
    for (int down = 0; down < kDown; ++down) {
      const int token_row = first_token + down * 16 + lane % 16;
      ptx::ldmatrix_x4(x[down], stage + swizzled<8>(token_row, step * 2 + lane / 16));
    }
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
      std::uint32_t b[2];
      codes.operand(across, step, flip, b);
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
        ptx::mma_m16n8k32_s8(sums[down][across], x[down], b);
      }
    }
  }

  // All of them to shared memory, where the warps of int_gemm_few meet.
  __device__ __forceinline__ void put_sums(int (&to)[Shape::kTokens][Shape::kRows]) const {
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[token(down, i)][row(across, i)] = sums[down][across][i];
      }
    }
  }

  // Zero points leave the sums of group g.
  __device__ __forceinline__ void take_zeros(const typename Memory::Groups& groups, int g) {
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[down][across][i] -=
              groups.zero[g][row(across, i)] * groups.token_sum[g][token(down, i)];
        }
      }
    }
  }

  // Group g of the slab is complete.
  __device__ __forceinline__ void flush(const IntMatmul& a, const GemmRows<Shape>& rows,
                                        const typename Memory::Groups& groups, int g, int slab) {
    const CodeWeight& weight = a.segments[0].weight;
    if (weight.zeros != nullptr) take_zeros(groups, g);
    const auto for_sums = [&](auto use) {
#pragma unroll
      for (int across = 0; across < kAcross; ++across) {
#pragma unroll
        for (int down = 0; down < kDown; ++down) {
#pragma unroll
          for (int i = 0; i < 4; ++i) use(across, down, i);
        }
      }
    };
    if constexpr (Sum::kIntegers) {
      for_sums([&](int across, int down, int i) {
        store_integer(a, rows, slab * Memory::kGroups + g, row(across, i), token(down, i),
                      sums[down][across][i] / Memory::kFactor);
      });
    } else {
      const auto add = [&](auto scale) {
        for_sums([&](int across, int down, int i) {
          totals[down][across][i].add(sums[down][across][i], scale(across, down, i));
        });
      };
      const auto of_row = [&](int across, int i) { return groups.row_scale[g][row(across, i)]; };
      const auto of_token = [&](int down, int i) { return groups.token_scale[token(down, i)]; };
      // Where one side alone has groups, the other's scale is 1.
      if (a.x.group == 0) {
        add([&](int across, int, int i) { return of_row(across, i); });
      } else if (weight.group == 0) {
        add([&](int, int down, int i) { return of_token(down, i); });
      } else {
        add([&](int across, int down, int i) { return of_row(across, i) * of_token(down, i); });
      }
    }
  }

  __device__ __forceinline__ void store_integer(const IntMatmul& a, const GemmRows<Shape>& rows,
                                                std::int64_t at, int n, int t, int sum) const {
    const std::int64_t token = rows.first_token + t;
    if (token >= a.tokens || rows.first + n >= rows.of(a, n).rows) return;
    a.integers[(at * a.tokens + token) * output_columns(a) + rows.column + n] = sum;
  }

  // Less the zero points of sums over the whole row.
  __device__ __forceinline__ int whole_sum(int down, int across, int i, int zero,
                                           int token_sum) const {
    return sums[down][across][i] - zero * token_sum;
  }

  // What outputs need of the warp's tokens, and of two neighbouring rows.
  struct TokenFacts {
    float scale[kDown][2];
    int sum[kDown][2];
    bool exists[kDown][2];

    __device__ __forceinline__ TokenFacts(const IntMatmul& a, const GemmRows<Shape>& rows,
                                          const WarpTile& tile) {
      const bool has_zeros = group == 0 && has_unsigned_bytes(a.segments[0].weight);
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int64_t token = rows.first_token + tile.token(down, 2 * half);
          exists[down][half] = token < a.tokens;
          const std::int64_t from = exists[down][half] ? token : 0;
          scale[down][half] = row_scale_of(a, from);
          sum[down][half] = has_zeros ? a.x.sums[from * a.x.sum_stride] : 0;
        }
      }
    }
  };
  struct RowFacts {
    RowFinish finish;
    int zero;

    __device__ __forceinline__ RowFacts(const CodeSegment& segment, int n)
        : finish(segment, n),
          zero(group == 0 && has_unsigned_bytes(segment.weight) ? segment.weight.zeros[n] - 128
                                                                : 0) {}
  };
  __device__ __forceinline__ float value(const RowFacts& facts, const TokenFacts& tokens, int down,
                                         int across, int i) const {
    float sum;
    if constexpr (group > 0) {
      sum = totals[down][across][i].total;
    } else {
      sum = static_cast<float>(whole_sum(down, across, i, facts.zero, tokens.sum[down][i / 2]));
    }
    return facts.finish.value(tokens.scale[down][i / 2], sum);
  }

  // The outputs of eight rows: reads first, then writes.
  __device__ __forceinline__ void finish_across(const IntMatmul& a, const GemmRows<Shape>& rows,
                                                const TokenFacts& tokens, int across) const {
    const int tile_row = row(across, 0), offset = rows.offset(tile_row), n = rows.first + offset;
    const CodeSegment& segment = rows.of(a, tile_row);
    if (n >= segment.rows) return;
    const bool has_next = n + 1 < segment.rows;
    const RowFacts facts[2] = {{segment, n}, {segment, has_next ? n + 1 : n}};
    const CodeSegment& other = rows.paired ? a.segments[1] : segment;
    const RowFacts ups[2] = {{other, n}, {other, has_next ? n + 1 : n}};
    float* const first =
        a.out.values + (rows.first_token + token(0, 0)) * a.out.stride + rows.column + offset;
    const auto place = [&](int down, int i) {
      return first + (down * 16 + i / 2 * 8) * a.out.stride + i % 2;
    };
    const auto exists = [&](int down, int i) {
      return tokens.exists[down][i / 2] && (i % 2 == 0 || has_next);
    };
    float before[kDown][4] = {};
    if (a.finish == Finish::add) {
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (exists(down, i)) before[down][i] = *place(down, i);
        }
      }
    }
#pragma unroll
    for (int down = 0; down < kDown; ++down) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float y = value(facts[i % 2], tokens, down, across, i);
        float up = 0;
        if (rows.paired) up = value(ups[i % 2], tokens, down, (across + 1) % kAcross, i);
        if (exists(down, i)) *place(down, i) = finished(a.finish, y, up, before[down][i]);
      }
    }
  }

  __device__ __forceinline__ void finish_all(const IntMatmul& a,
                                             const GemmRows<Shape>& rows) const {
    if constexpr (Sum::kIntegers) {
      if constexpr (group == 0) store_whole(a, rows);
      return;
    }
    const TokenFacts tokens(a, rows, *this);
    // With swiglu the tiles across are of gate and of up in turn.
    const int step = rows.paired ? 2 : 1;
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
      if (across % step == 0) finish_across(a, rows, tokens, across);
    }
  }
  __device__ __forceinline__ void store_whole(const IntMatmul& a,
                                              const GemmRows<Shape>& rows) const {
    const TokenFacts tokens(a, rows, *this);
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int tile_row = row(across, i), n = rows.first + rows.offset(tile_row);
          const CodeSegment& segment = rows.of(a, tile_row);
          if (n >= segment.rows) continue;
          const int zero = has_unsigned_bytes(segment.weight) ? segment.weight.zeros[n] - 128 : 0;
          store_integer(a, rows, 0, tile_row, token(down, i),
                        whole_sum(down, across, i, zero, tokens.sum[down][i / 2]));
        }
      }
    }
  }
};

// Multiplies one slab. `complete(g)` takes the sums of its group g.
template <class Shape, int bits, int group, class Sum, class Complete>
__device__ __forceinline__ void multiply_slab(const unsigned char* stage, std::uint32_t flip,
                                              WarpTile<Shape, bits, group, Sum>& tile,
                                              Complete complete) {
  using Memory = GemmMemory<Shape, bits, group>;
  const unsigned char* const weights = stage + Memory::kTokenBytes;
  SlabCodes<Shape, bits> codes;
  if constexpr (bits == 3) codes.load_three(weights, tile.first_row);
  if constexpr (bits == 4 || bits == 2) codes.load(weights, tile.first_row, 0);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if constexpr (bits == 8) codes.load(weights, tile.first_row, step * 2);
    if (group > 0 && step * 32 % (group > 0 ? group : 1) == 0) tile.start(Sum::kStart);
    tile.multiply(stage, codes, step, flip);
    if constexpr (group > 0) {
      if ((step + 1) * 32 % group == 0) complete(step * 32 / group);
    }
  }
}

// group: columns of one int32 sum, 0 = the row.
template <class Shape, int bits, int group, class Sum>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    int_gemm(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(Shape::kThreads);
  using Memory = GemmMemory<Shape, bits, group>;
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  auto* const groups =
      reinterpret_cast<typename Memory::Groups*>(memory + Shape::kStages * Memory::kStageBytes);
  const Grouping grouping(a);
  const GemmRows<Shape> rows(a);
  const std::uint32_t flip = signed_flip<bits>(a);
  const int slabs = grouping.columns / kSlab;
  const auto stage_of = [&](int slab) {
    return memory + slab % Shape::kStages * Memory::kStageBytes;
  };
  CodeCopies<Shape, bits> weights(a, rows, slabs);
  TokenCopies<Shape> tokens(a, rows);
  const auto load_weights = [&](int slab) {
    if (slab < slabs) weights.load(stage_of(slab) + Memory::kTokenBytes);
  };
  const auto load_inputs = [&](int slab) {
    if (slab < slabs) tokens.load(stage_of(slab));
    ptx::cp_async_commit();
  };
  for (int slab = 0; slab < Shape::kStages - 1; ++slab) load_weights(slab);
  ptx::wait_for_predecessor();
  for (int slab = 0; slab < Shape::kStages - 1; ++slab) load_inputs(slab);
  SlabGroups<Shape, bits, group> next;
  [[maybe_unused]] const int thread = static_cast<int>(threadIdx.x);
  if constexpr (group > 0) {
    next.load(a, grouping, rows, 0, thread);
    next.store(groups[0], thread);
  }
  WarpTile<Shape, bits, group, Sum> tile;
  tile.start(0);
  for (int slab = 0; slab < slabs; ++slab) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    // After it the slab is there for all, and the stage of the slab before is free.
    __syncthreads();
    load_weights(slab + Shape::kStages - 1);
    load_inputs(slab + Shape::kStages - 1);
    const bool more = group > 0 && slab + 1 < slabs;
    if constexpr (group > 0) {
      if (more) next.load(a, grouping, rows, slab + 1, thread);
    }
    multiply_slab<Shape, bits, group>(
        stage_of(slab), flip, tile, [&](int g) { tile.flush(a, rows, groups[slab % 2], g, slab); });
    if constexpr (group > 0) {
      if (more) next.store(groups[(slab + 1) % 2], thread);
    }
  }
  ptx::let_successor_start();
  tile.finish_all(a, rows);
}

}  // namespace leq::LEQ_GPU
