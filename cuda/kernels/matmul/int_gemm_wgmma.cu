// Many tokens times a weight of 8, 4, 3 or 2 bits on compute capability 9.0 (wgmma). One warpgroup
// loads tiles by TMA and two others multiply them; a block iterates over tiles of the output. Sums
// and their order are those of int_gemm.cuh (docs/cuda-kernels.md).
#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/kernels/matmul/int_wgmma_tiles.cuh"

namespace leq::LEQ_GPU {

// A lane has one row and every second token. If gated it has a row of gate, the corresponding row
// of up, and every fourth token.
template <class Shape, Finish how>
struct WarpFinish {
  using Memory = HopperMemory<Shape>;
  static constexpr bool kPaired = is_gated(how), kGrouped = Shape::kGroup != 0;
  static constexpr bool kRowZeros = Shape::kMayHaveZeros && !kGrouped;  // zeros of uint8
  static constexpr int kWidth = kPaired ? 8 : Memory::kOutRows, kStep = 32 / kWidth;
  static constexpr int kTogether = 8;  // tokens that are read before one is written
  static_assert(Memory::kOutTokens % (kTogether * kStep) == 0);

  const IntMatmul& a;
  int column, first;   // the lane's column and first token in shared memory
  std::int64_t token;  // token `first` of the tile's first 32
  std::int64_t to;     // output column
  bool has_row;
  RowFinish row, up;
  int zero[2] = {};  // zero points of row and of up

  __device__ __forceinline__ WarpFinish(const IntMatmul& arguments, const GemmRows<Shape>& rows,
                                        int warp, int lane)
      : WarpFinish(arguments, rows, arguments.segments[kPaired ? 0 : rows.segment],
                   arguments.segments[kPaired ? 1 : rows.segment], warp * 16 + lane % kWidth,
                   lane) {}

  // Values for a token's output. Those of kTogether tokens are read before the first is written.
  struct Read {
    float scale = 1, before = 0;
    int sum = 0;  // sum of the token's codes
  };

  // Writes the 32 tokens of the tile that begin at token `from`.
  __device__ __forceinline__ void write(int from, const int* out) const {
    if (!has_row) return;
    const std::int64_t next = token + from;
    const int left = static_cast<int>(min(a.tokens - next, std::int64_t{Memory::kOutTokens}));
#pragma unroll 1
    for (int t = 0; t < Memory::kOutTokens; t += kTogether * kStep) {
      Read read[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (t + i * kStep < left) read[i] = read_of(next + t + i * kStep);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = t + i * kStep;
        if (at < left) put(next + at, out + (first + at) * Memory::kOutStride + column, read[i]);
      }
    }
  }

 private:
  __device__ __forceinline__ WarpFinish(const IntMatmul& arguments, const GemmRows<Shape>& rows,
                                        const CodeSegment& segment, const CodeSegment& other,
                                        int tile_row, int lane)
      : WarpFinish(arguments, rows, segment, other, tile_row, lane,
                   rows.first + rows.offset(tile_row)) {}
  // n is a row of the segment; past the last row, the last row is read instead.
  __device__ __forceinline__ WarpFinish(const IntMatmul& arguments, const GemmRows<Shape>& rows,
                                        const CodeSegment& segment, const CodeSegment& other,
                                        int tile_row, int lane, int n)
      : a(arguments),
        column(lane % kWidth),
        first(lane / kWidth),
        token(rows.first_token + lane / kWidth),
        to(rows.column + rows.offset(tile_row)),
        has_row(n < segment.rows),
        row(segment, min(n, static_cast<int>(segment.rows) - 1)),
        up(other, min(n, static_cast<int>(other.rows) - 1)) {
    if (!kRowZeros || !has_row) return;
    zero[0] = segment.weight.zeros[n] - 128;
    if (kPaired) zero[1] = other.weight.zeros[n] - 128;
  }

  __device__ __forceinline__ Read read_of(std::int64_t at) const {
    Read read;
    read.scale = row_scale_of(a, at);
    if (how == Finish::add) read.before = a.out.values[at * a.out.stride + to];
    if (kRowZeros) read.sum = a.x.sums[at * a.x.sum_stride];
    return read;
  }
  // `sums` points to the row's sum; the sum of up is eight numbers further on.
  __device__ __forceinline__ void put(std::int64_t at, const int* sums, const Read& read) const {
    const float y = row.value(read.scale, number(sums[0], zero[0], read));
    float u = 0;
    if constexpr (kPaired) u = up.value(read.scale, number(sums[8], zero[1], read));
    a.out.values[at * a.out.stride + to] = finished(how, y, u, read.before);
  }
  // The sum over the columns. `bits`: with groups the bits of a float, else the row's int32 sum.
  __device__ __forceinline__ float number(int bits, int less, const Read& read) const {
    if constexpr (kGrouped) return __int_as_float(bits);
    return static_cast<float>(bits - less * read.sum);
  }
};

// The sums of one warpgroup: 64 rows x all tokens of the tile. Number i of a thread has row
// lane / 4 + 8 (i / 2 % 2) of its warp's 16, and token 8 (i / 4) + 2 (lane % 4) + i % 2.
template <class Shape>
struct WarpgroupTile {
  using Memory = HopperMemory<Shape>;
  static constexpr bool kGrouped = Shape::kGroup != 0;
  static constexpr int kPartSums = Shape::kPartSums;
  int sums[Shape::kParts][kPartSums];
  float totals[kGrouped ? Shape::kSums : 1];
  // Operand A of one K tile, or with groups of two K tiles in turn; a register set has 32 columns.
  std::uint32_t codes[Shape::kParts][Shape::kThroughRegisters ? 4 : 1][4];
  // Offset in a stage of the row that the lane reads for each two chunks of codes, in ldmatrix
  // order: the warp's first eight rows and its next eight rows of one chunk, then of the other.
  static constexpr int kCodeLoads = Shape::kThroughRegisters ? (Shape::kBits + 1) / 2 : 1;
  int code_at[kCodeLoads];
  int lane, warp;              // warp: index among the warps that multiply
  int first_row, first_token;  // of the thread's number 0

  // These values are opaque to the compiler, which would otherwise recompute them for each K tile.
  __device__ __forceinline__ WarpgroupTile()
      : lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32) - 4),
        first_row(kept(warp * 16 + lane / 4)),
        first_token(kept(lane % 4 * 2)) {
    for_each_of(sums, [](int& sum) { sum = kept(0); });
    if constexpr (!Shape::kThroughRegisters) return;
#pragma unroll
    for (int i = 0; i < kCodeLoads; ++i) {
      const int chunk = min(2 * i + lane / 16, Shape::kBits - 1);
      code_at[i] = kept(swizzled<Shape::kBits>(warp * 16 + lane % 16, chunk));
    }
  }
  static __device__ __forceinline__ int kept(int x) {
    return ptx::opaque(static_cast<unsigned>(x));
  }

  __device__ __forceinline__ int row(int i) const { return first_row + i / 2 % 2 * 8; }
  __device__ __forceinline__ int token(int i) const { return first_token + i / 4 * 8 + i % 2; }

  __device__ __forceinline__ void start() {
    if constexpr (kGrouped) fill(totals, 0.0f);
  }

  // Unpacks a K tile's codes into registers of operand A; if `zeros`, subtracts the zero points.
  template <int set>
  __device__ __forceinline__ void load_codes(const Memory& memory, int stage, std::uint32_t flip,
                                             bool zeros) {
    constexpr int kBits = Shape::kBits;
    std::uint32_t found[kCodeLoads][4];
#pragma unroll
    for (int i = 0; i < kCodeLoads; ++i) {
      ptx::ldmatrix_x4(found[i], memory.codes(stage) + code_at[i]);
    }
    const auto unpack = [&](auto quad) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t words[kBits];
#pragma unroll
        for (int chunk = 0; chunk < kBits; ++chunk) {
          words[chunk] = found[chunk / 2][chunk % 2 * 2 + half];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // 16 columns in each iteration
          codes[set][i / 2][half + i % 2 * 2] = quad(words, i, half);
        }
      }
    };
    if constexpr (Shape::kZerosInCodes && kGrouped) {
      if (zeros) {
        const auto& of_row = memory.groups(stage).zero;
        const std::uint32_t less[2] = {of_row[row(0)], of_row[row(2)]};
        return unpack([&](const auto& words, int i, int half) {
          return k_tile_quad_less<kBits>(words, i, less[half]);
        });
      }
    }
    unpack([&](const auto& words, int i, int) { return k_tile_quad<kBits>(words, i, flip); });
  }

  // Starts multiplying a part of a K tile; if `add`, accumulates onto the existing sums.
  template <int part, int set>
  __device__ __forceinline__ void multiply(const Memory& memory, int stage, bool add) {
    constexpr int kPartBytes = Memory::kTokenBytes / Shape::kParts;
    const std::uint64_t b = ptx::matrix_operand(memory.tokens(stage) + part * kPartBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t columns = ptx::next_columns(b, step);
      if constexpr (Shape::kThroughRegisters) {
        ptx::wgmma(sums[part], codes[set][step], columns, add || step > 0);
      } else {
        const unsigned char* const rows = memory.codes(stage) + warp / 4 * (64 * kKTile);
        const std::uint64_t mine = ptx::next_columns(ptx::matrix_operand(rows), step);
        ptx::wgmma(sums[part], mine, columns, add || step > 0);
      }
    }
    ptx::wgmma_commit();
  }

  // Ends a group of a part. The sums are operands of wgmma and are therefore not modified.
  template <int part>
  __device__ __forceinline__ void flush(const IntMatmul& a, const typename Memory::Groups& groups) {
    const CodeWeight& weight = a.segments[0].weight;
    // If only weights or only tokens have groups, the other scale of the group is 1.
    const float of_row[2] = {groups.row_scale[row(0)], groups.row_scale[row(2)]};
    if (a.x.group == 0) {
      add_scaled<part, false, true>(groups, of_row);
    } else if (weight.group == 0) {
      add_scaled<part, true, false>(groups, of_row);
    } else {
      add_scaled<part, true, true>(groups, of_row);
    }
  }
  // Eight sums, of 4 tokens x 2 rows, less what uint8 zero points contribute. This needs the sums
  // of codes of four tokens, which are contiguous.
  template <int part>
  __device__ __forceinline__ void eight_sums(const typename Memory::Groups& groups, int first,
                                             int (&eight)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) eight[i] = sums[part][first + i];
    if constexpr (Shape::kZerosInSums) {
      const int less[2] = {static_cast<int>(groups.zero[row(0)]),
                           static_cast<int>(groups.zero[row(2)])};
      const auto* const of_tokens =
          reinterpret_cast<const int4*>(groups.token_sum + 2 * first_token);
      const int4 four = of_tokens[(part * kPartSums + first) / 2];
      const int of_token[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) eight[i] += less[i / 2 % 2] * of_token[i / 4 * 2 + i % 2];
    }
  }
  // The scales of four tokens are contiguous, like their sums.
  template <int part, bool by_token, bool by_row>
  __device__ __forceinline__ void add_scaled(const typename Memory::Groups& groups,
                                             const float (&of_row)[2]) {
    const auto* const scales =
        reinterpret_cast<const float4*>(groups.token_scale + 2 * first_token);
#pragma unroll
    for (int first = 0; first < kPartSums; first += 8) {
      float of_token[4] = {};
      if constexpr (by_token) {
        const float4 four = scales[(part * kPartSums + first) / 2];
        of_token[0] = four.x;
        of_token[1] = four.y;
        of_token[2] = four.z;
        of_token[3] = four.w;
      }
      int eight[8];
      eight_sums<part>(groups, first, eight);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float token = of_token[i / 4 * 2 + i % 2], row = of_row[i / 2 % 2];
        const float scale = by_token && by_row ? row * token : by_token ? token : row;
        float& total = totals[part * kPartSums + first + i];
        total = fmaf(static_cast<float>(eight[i]), scale, total);
      }
    }
  }

  // Writes the tile's sums to the output, by code for each Finish.
  template <int how = 0>
  __device__ __forceinline__ void finish_all(const IntMatmul& a, const GemmRows<Shape>& rows,
                                             int* out) const {
    constexpr auto kFinish = static_cast<Finish>(how);
    if (a.finish == kFinish) return finish_as<kFinish>(a, rows, out);
    if constexpr (kFinish != kLastFinish) finish_all<how + 1>(a, rows, out);
  }
  // Writes 32 tokens at a time through shared memory, so that neighbouring lanes write neighbouring
  // columns. This is a loop, because unrolled for 256 tokens it would have 100 KB of instructions.
  template <Finish how>
  __device__ __forceinline__ void finish_as(const IntMatmul& a, const GemmRows<Shape>& rows,
                                            int* out) const {
    const WarpFinish<Shape, how> finish(a, rows, warp, lane);
#pragma unroll 1
    for (int part = 0; part < Shape::kTokens / Memory::kOutTokens; ++part) {
      __syncwarp();
      put_out(part, out);
      __syncwarp();
      finish.write(part * Memory::kOutTokens, out);
    }
  }
  __device__ __forceinline__ void put_out(int part, int* out) const {
    constexpr int kEach = Memory::kOutTokens / 2;
#pragma unroll
    for (int one = 0; one < Shape::kTokens / Memory::kOutTokens; ++one) {
      if (one != part) continue;  // because register indices must be constants
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int from = one * kEach + i;
        const int bits = kGrouped ? __float_as_int(totals[kGrouped ? from : 0])
                                  : sums[from / kPartSums][from % kPartSums];
        out[token(i) * Memory::kOutStride + lane / 4 + i / 2 % 2 * 8] = bits;
      }
    }
  }
};

// Multiplies the K tiles of a warpgroup's tiles if there is one sum for the whole row.
template <class Shape>
struct RowKTiles {
  const IntMatmul& a;
  const HopperMemory<Shape>& memory;
  WarpgroupTile<Shape>& tile;
  std::uint32_t flip;
  Ring<HopperMemory<Shape>::kStages> ring;

  __device__ __forceinline__ RowKTiles(const IntMatmul& arguments,
                                       const HopperMemory<Shape>& stages, WarpgroupTile<Shape>& of)
      : a(arguments), memory(stages), tile(of), flip(signed_flip<Shape::kBits>(arguments)) {}

  __device__ __forceinline__ void multiply(int k_tiles) {
    int last = 0;  // stage of the K tile that is being multiplied
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ring.next()) {
      ptx::barrier_wait(memory.full(ring.stage), ring.parity);
      if constexpr (Shape::kThroughRegisters) {
        tile.template load_codes<0>(memory, ring.stage, flip, false);
      }
      tile.template multiply<0, 0>(memory, ring.stage, k_tile > 0);
      if constexpr (Shape::kThroughRegisters) {
        ptx::wgmma_finish(tile.sums[0]);
        memory.release(ring.stage);
      } else {
        ptx::wgmma_wait<1>();
        if (k_tile > 0) memory.release(last);
        last = ring.stage;
      }
    }
    if constexpr (!Shape::kThroughRegisters) {
      ptx::wgmma_finish(tile.sums[0]);
      memory.release(last);
    }
  }
};

// Multiplies K tiles if there are groups. Each K tile's sums are scaled while the tensor cores
// multiply the next part: part 0 during part 1, and part 1 during part 0 of the next K tile. After
// two K tiles the code waits for all wgmma, because ptxas serializes wgmma (C7514) if sums that are
// read are in flight across iterations of a loop.
template <class Shape>
struct GroupKTiles {
  const IntMatmul& a;
  const HopperMemory<Shape>& memory;
  WarpgroupTile<Shape>& tile;
  std::uint32_t flip;
  bool zeros;
  Ring<HopperMemory<Shape>::kStages> ring;
  int last = 0;  // stage of the preceding K tile

  __device__ __forceinline__ GroupKTiles(const IntMatmul& arguments,
                                         const HopperMemory<Shape>& stages,
                                         WarpgroupTile<Shape>& of)
      : a(arguments),
        memory(stages),
        tile(of),
        flip(Shape::kMayHaveZeros ? signed_flip<Shape::kBits>(arguments) : 0),
        zeros(has_zeros(arguments)) {}

  __device__ __forceinline__ void multiply(int k_tiles) {
    if (k_tiles % 2 == 1) {
      step<0, true>();
      end<0>();
    }
    for (int pair = 0; pair < k_tiles / 2; ++pair) {
      step<0, true>();
      step<1, false>();
      end<0>();
    }
  }
  // `set` is the set of registers of operand A that part 1 of the preceding K tile does not use.
  template <int set, bool first>
  __device__ __forceinline__ void step() {
    ptx::barrier_wait(memory.full(ring.stage), ring.parity);
    tile.template load_codes<set>(memory, ring.stage, flip, zeros);
    tile.template multiply<0, set>(memory, ring.stage, false);
    if constexpr (!first) end<1>();
    tile.template multiply<1, set>(memory, ring.stage, false);
    ptx::wgmma_finish<1>(tile.sums[0]);
    tile.template flush<0>(a, memory.groups(ring.stage));
    last = ring.stage;
    ring.next();
  }
  // Ends part 1 of the preceding K tile; `left` is the number of multiplications started after it.
  template <int left>
  __device__ __forceinline__ void end() {
    ptx::wgmma_finish<left>(tile.sums[1]);
    tile.template flush<1>(a, memory.groups(last));
    memory.release(last);
  }
};

// Two warpgroups run this function: they multiply the K tiles of all tiles of the block.
template <class Shape>
__device__ __forceinline__ void multiply_tiles(const IntMatmul& a, const HopperMaps& maps,
                                               const HopperMemory<Shape>& memory, int k_tiles) {
  using KTiles = std::conditional_t<Shape::kGroup == 0, RowKTiles<Shape>, GroupKTiles<Shape>>;
  WarpgroupTile<Shape> tile;
  KTiles all(a, memory, tile);
  const TileSchedule schedule(maps);
  for (int i = schedule.first; i < schedule.end; i += schedule.step) {
    const GemmRows<Shape> rows = maps.rows<Shape>(a, i);
    tile.start();
    all.multiply(k_tiles);
    tile.finish_all(a, rows, memory.out(tile.warp));
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    int_gemm_wgmma(const LEQ_GRID_CONSTANT IntMatmul a, const LEQ_GRID_CONSTANT HopperMaps maps) {
  LEQ_BOUNDS(Shape::kThreads);
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    const HopperMemory<Shape> memory(dynamic);
    if (threadIdx.x == 0) memory.init();
    ptx::sync_cluster();
    const int k_tiles = static_cast<int>(padded_columns(a.columns) / kKTile);
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < 4) {
      ptx::keep_registers<88>();
      if (threadIdx.x == 0) load_tiles(a, maps, memory, k_tiles);
      if (Shape::kGroup != 0 && warp >= 2) {
        load_scales(a, maps, memory, k_tiles, static_cast<int>(threadIdx.x) - 64);
      }
    } else {
      ptx::take_registers<208>();
      multiply_tiles<Shape>(a, maps, memory, k_tiles);
    }
    // The other block of the cluster may access this block's shared memory until it has finished.
    ptx::sync_cluster();
  } else {
    ptx::wrong_architecture();
  }
}

namespace {

// The tensor map of rows of `bytes` bytes in device memory; a load takes `columns` bytes of a row.
rt::TensorMap rows_map(const void* base, std::int64_t rows, std::int64_t bytes, std::int64_t stride,
                       int box_rows, int columns) {
  const auto swizzle = columns % 32 != 0 ? rt::Swizzle::none : static_cast<rt::Swizzle>(columns);
  return rt::make_tensor_map({base, rows, bytes, stride, box_rows, columns, swizzle});
}

// The grid has one block for each multiprocessor; each block iterates over tiles.
template <int bits, int group, int tokens, bool zeros>
void launch(const IntMatmul& a, rt::Stream& stream) {
  using Shape = HopperShape<bits, group, tokens, zeros>;
  using Memory = HopperMemory<Shape>;
  const std::int64_t padded = padded_columns(a.columns), bytes = padded * bits / 8;
  HopperMaps maps = {};
  maps.tokens =
      rows_map(a.x.codes, a.tokens, padded, a.x.code_stride, tokens / kCluster, kBoxBytes);
  maps.token_tiles = static_cast<int>(div_up(a.tokens, tokens));
  for (int i = 0; i < a.segment_count; ++i) {
    const auto& [weight, bias, rows] = a.segments[i];
    maps.weights[i] = rows_map(weight.codes, rows, bytes, bytes,
                               is_gated(a.finish) ? 8 : Shape::kRows, Memory::kRowBytes);
  }
  maps.row_tiles = static_cast<int>(div_up(row_tiles(a, Shape::kRows), kCluster));
  const int clusters = std::min(maps.token_tiles * maps.row_tiles,
                                std::max(rt::device_of(stream).multiprocessors / kCluster, 1));
  rt::run(stream,
          {"int_gemm_wgmma", rt::grid(clusters * kCluster), kHopperThreads, Memory::kBytes,
           rt::Start::in_order, kCluster},
          int_gemm_wgmma<Shape>, a, maps);
}

// Tiles of 256 tokens minimize reads; if there are groups, their totals leave registers for only
// 128 tokens. uint8 becomes signed bytes in registers.
void launch_bytes(const IntMatmul& a, rt::Stream& stream) {
  const bool grouped = a.segments[0].weight.group > 0 || a.x.group > 0;
  if (a.segments[0].weight.zeros != nullptr) {
    return grouped ? launch<8, 128, 128, true>(a, stream) : launch<8, 0, 128, true>(a, stream);
  }
  if (grouped) return launch<8, 128, 128, false>(a, stream);
  if (a.tokens <= 128) return launch<8, 0, 128, false>(a, stream);
  launch<8, 0, 256, false>(a, stream);
}

}  // namespace

void launch_int_wgmma(const IntMatmul& a, rt::Stream& stream) {
  launch_by_bits(a.segments[0].weight.bits, [&]<int bits>() {
    if constexpr (bits == 8) return launch_bytes(a, stream);
    // Codes of fewer than 8 bits always have groups.
    if constexpr (bits < 8) launch<bits, 128, 128, true>(a, stream);
  });
}

}  // namespace leq::LEQ_GPU
