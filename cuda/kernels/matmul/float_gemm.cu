// Many tokens of f32 activations times 16-bit floats or codes, on the tensor cores, and the
// launches of this kernel and of float_gemv. Inputs are split into terms: two f16 parts for f16
// weights and codes, three bf16 parts for bf16 weights. A block computes a tile of tokens x
// outputs. It iterates over K tiles of columns, which are prefetched by cp.async. Each output is
// one chain of additions, the same as in float_gemv.cuh.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/float_gemv.cuh"
#include "cuda/kernels/matmul/float_matmul.h"
#include "cuda/kernels/matmul/float_weights.cuh"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/kernels/matmul/matmul_finish.cuh"

namespace leq::LEQ_GPU {

// A tile of kTokens x kRows, divided among kDown x kAcross warps; a K tile has kKTile columns. If
// gated, half of the rows are rows of gate and half rows of up, alternating in groups of eight.
template <int tokens, int rows, int warps_down, int warps_across, int k_tile, int stages>
struct FloatGemmShape {
  static constexpr int kTokens = tokens, kRows = rows, kKTile = k_tile, kStages = stages;
  static constexpr int kAcross = warps_across, kThreads = 32 * warps_down * warps_across;
  static constexpr int kRowTiles = rows / warps_down / 16;  // tiles of 16 rows in a warp
  static constexpr int kTokenTiles = tokens / warps_across / 8;
  static_assert(kThreads >= rows && kBlockColumns % k_tile == 0);
};

// The inputs, split into f16 or bf16 terms (rows/terms.cuh), in shared memory; a term of 32 columns
// has 64 bytes. The 16 bytes that lanes of two neighbouring tokens read are in different banks.
template <int tokens, int columns, int count>
struct TermTile {
  static constexpr int kUnits = columns / 32 * count;
  // The 16-byte chunks of a token that are copied at once; three units are copied in three passes.
  static constexpr int kPasses = kUnits == 3 ? 3 : 1, kChunks = kUnits * 4 / kPasses;
  static constexpr int kBytes = tokens * kUnits * 64;

  static __device__ __forceinline__ int place(int token, int unit) {
    return (token * kUnits + (kUnits % 2 == 0 ? unit ^ token % 2 : unit)) * 64;
  }
  // Loads operand B of two steps (32 columns) for the eight tokens that begin at `token`.
  static __device__ __forceinline__ void operand(const unsigned char* tile, int token, int block,
                                                 uint4 (&x)[count]) {
    const int lane = static_cast<int>(threadIdx.x % 32), own = token + lane / 4;
#pragma unroll
    for (int term = 0; term < count; ++term) {
      x[term] =
          *reinterpret_cast<const uint4*>(tile + place(own, block * count + term) + lane % 4 * 16);
    }
  }
};

template <class Weights, class Shape>
struct FloatGemmMemory {
  using Terms = TermTile<Shape::kTokens, Shape::kKTile, Weights::kTerms>;
  using Tile = typename Weights::template Tile<Shape::kRows, Shape::kKTile>;
  static constexpr int kStageBytes = Terms::kBytes + Tile::kBytes;
  // Scales and zero points of groups, for each 32 columns where one may begin; double-buffered.
  using Groups = GroupNumbers[kBlockColumns / 32][Shape::kRows];
  static constexpr int kBytes =
      Shape::kStages * kStageBytes + (Weights::kScaled ? 2 * static_cast<int>(sizeof(Groups)) : 0);
};

// A thread's share of the copies of a K tile's inputs.
template <class Weights, class Shape,
          class Terms_ = typename FloatGemmMemory<Weights, Shape>::Terms>
struct TermCopies : InputCopies<Shape, Terms_::kChunks, Terms_::kPasses> {
  using Terms = Terms_;
  static_assert(TermCopies::kStep % 2 == 0 && TermCopies::kRowBytes == Terms::kUnits * 64);

  template <class Rows>
  __device__ __forceinline__ TermCopies(const TermRows& x, std::int64_t tokens, const Rows& rows)
      : TermCopies::InputCopies(x.terms, x.stride, rows.first_token, tokens,
                                Terms::place(TermCopies::row(), TermCopies::chunk() / 4) +
                                    TermCopies::chunk() % 4 * 16) {}
};

// A thread's share of the copies of a K tile's weights.
template <class Weights, class Shape>
struct WeightCopies : SegmentCopies<Shape, FloatGemmMemory<Weights, Shape>::Tile::kChunks> {
  using Tile = typename FloatGemmMemory<Weights, Shape>::Tile;
  static_assert(WeightCopies::kStep % 16 == 0);
  int row_chunks;  // chunks of 16 bytes in a row

  template <class Rows>
  __device__ __forceinline__ WeightCopies(const typename Weights::Arguments& a, const Rows& rows)
      : WeightCopies::SegmentCopies(
            a, rows, Weights::row_bytes(a),
            Tile::chunk_place(WeightCopies::row(), WeightCopies::chunk()),
            [](const auto& segment) -> const void* { return Weights::stored(segment); }),
        row_chunks(Weights::row_bytes(a) / 16) {}

  // A row of floats may end within a K tile, but a row of codes is padded.
  __device__ __forceinline__ void load(unsigned char* tile, int k_tile) const {
    WeightCopies::RowCopies::load(
        tile, k_tile,
        Weights::kScaled || k_tile * Tile::kChunks + WeightCopies::chunk() < row_chunks);
  }
};

// Scales and zero points of a block of 128 columns, in transit to shared memory; a row per thread.
template <class Weights, class Shape>
struct BlockGroups {
  using Groups = typename FloatGemmMemory<Weights, Shape>::Groups;
  GroupNumbers numbers[kBlockColumns / 32];

  template <class Arguments, class Rows>
  __device__ __forceinline__ void load(const Arguments& a, const Rows& rows, int block,
                                       const Folding& folding) {
    const int n = static_cast<int>(threadIdx.x), row = rows.first + rows.offset(n);
    const auto& segment = rows.of(a, n);
    const bool exists = n < Shape::kRows && row < segment.rows && block * kBlockColumns < a.columns;
    int i = 0;
#pragma unroll
    for (int part = 0; part < kBlockColumns / 32; ++part) {
      numbers[part] = {0.0f, 0};
      if (!folding.begins_at(part * 32)) continue;
      const std::int64_t at = folding.scale_at(row, block, i++);
      if (!exists) continue;
      const std::uint32_t stored = Weights::stored_group(segment.weight, at);
      numbers[part] = Weights::group_numbers(segment.weight, stored);
    }
  }
  __device__ __forceinline__ void store(Groups& to) const {
    if (threadIdx.x >= Shape::kRows) return;
#pragma unroll
    for (int part = 0; part < kBlockColumns / 32; ++part) to[part][threadIdx.x] = numbers[part];
  }
};

// The sums of one warp. Number i of an mma tile has row lane / 4 + 8 (i / 2) and
// token 2 (lane % 4) + i % 2.
template <class Weights, class Shape>
struct FloatWarpTile {
  using Memory = FloatGemmMemory<Weights, Shape>;
  static constexpr int kRowTiles = Shape::kRowTiles, kTokenTiles = Shape::kTokenTiles;
  float sums[kTokenTiles][kRowTiles][4] = {};
  float totals[kTokenTiles][kRowTiles][4] = {};
  std::uint32_t offsets[kRowTiles][2] = {};
  int first_row, first_token;  // the warp's first, within the block's tile

  __device__ __forceinline__ FloatWarpTile() {
    const int warp = static_cast<int>(threadIdx.x / 32);
    first_row = warp / Shape::kAcross * kRowTiles * 16;
    first_token = warp % Shape::kAcross * kTokenTiles * 8;
  }
  __device__ __forceinline__ int row(int m, int i) const {
    return first_row + m * 16 + static_cast<int>(threadIdx.x % 32) / 4 + i / 2 * 8;
  }
  __device__ __forceinline__ int token(int n, int i) const {
    return first_token + n * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
  }

  // Starts the group that begins at column 32 * part of the 128 columns; fold() ends the group.
  __device__ __forceinline__ void start(const typename Memory::Groups& groups, int part) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      offsets[m][0] = groups[part][row(m, 0)].offset;
      offsets[m][1] = groups[part][row(m, 2)].offset;
    }
  }

  // Multiplies columns 32 block ... 32 block + 31 of a K tile.
  __device__ __forceinline__ void multiply(const unsigned char* stage, int block,
                                           std::uint32_t flip) {
    using Tile = typename Memory::Tile;
    const unsigned char* const weights = stage + Memory::Terms::kBytes;
    std::uint32_t w[kRowTiles][2][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      load_operand<Weights, Tile>(weights, row(m, 0), block, flip, offsets[m], w[m]);
    }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      uint4 x[Weights::kTerms];
      Memory::Terms::operand(stage, first_token + n * 8, block, x);
      multiply_block<Weights>(sums[n], w, x);
    }
  }

  __device__ __forceinline__ void fold(const typename Memory::Groups& groups, int part) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = Weights::kScaled ? groups[part][row(m, half * 2)].scale : 1.0f;
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
          for (int i = half * 2; i < half * 2 + 2; ++i) {
            totals[n][m][i] = fmaf(sums[n][m][i], scale, totals[n][m][i]);
            sums[n][m][i] = 0;
          }
        }
      }
    }
  }

  // Writes a lane's outputs of one row (if gated a row of gate). All reads precede the writes.
  template <class Arguments, class Rows>
  __device__ __forceinline__ void finish_row(const Arguments& a, const Rows& rows,
                                             const float2 (&scales)[kTokenTiles][2], int m,
                                             int half) const {
    const int tile_row = row(m, 2 * half), offset = rows.offset(tile_row), at = rows.first + offset;
    const auto& segment = rows.of(a, tile_row);
    if (at >= segment.rows) return;
    const auto& other = rows.paired ? a.segments[1] : segment;
    const FloatRowFinish<Weights> of_row(segment, at), of_up(other, at);
    const auto place = [&](int n, int i) {
      return a.out.values + (rows.first_token + token(n, i)) * a.out.stride + rows.column + offset;
    };
    float before[kTokenTiles][2] = {};
    if (a.finish == Finish::add) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (rows.first_token + token(n, i) < a.tokens) before[n][i] = *place(n, i);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (rows.first_token + token(n, i) >= a.tokens) continue;
        const float y = of_row.value(scales[n][i], totals[n][m][2 * half + i]);
        const float up = rows.paired ? of_up.value(scales[n][i], totals[n][m][2 + i]) : 0.0f;
        *place(n, i) = finished(a.finish, y, up, before[n][i]);
      }
    }
  }

  template <class Arguments, class Rows>
  __device__ __forceinline__ void finish_all(const Arguments& a, const Rows& rows) const {
    float2 scales[kTokenTiles][2];
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t from = min(rows.first_token + token(n, i), a.tokens - 1);
        scales[n][i] = {a.x.scales[from * 2], a.x.scales[from * 2 + 1]};
      }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      finish_row(a, rows, scales, m, 0);
      // If gated the second eight of each 16 rows are rows of up, which the rows of gate read.
      if (!rows.paired) finish_row(a, rows, scales, m, 1);
    }
  }
};

// Multiplies one K tile. `block` is the index of its first 32 columns in the row.
template <class Weights, class Shape>
__device__ __forceinline__ void multiply_k_tile(
    FloatWarpTile<Weights, Shape>& tile, const unsigned char* stage,
    const typename FloatGemmMemory<Weights, Shape>::Groups& groups, int block,
    const Folding& folding, std::uint32_t flip) {
  [[maybe_unused]] constexpr int kUnrolled = Weights::kUnrolled;
#pragma unroll kUnrolled
  for (int b = 0; b < Shape::kKTile / 32; ++b) {
    const int column = (block + b) * 32 % kBlockColumns;
    if constexpr (Weights::kScaled) {
      if (folding.begins_at(column)) tile.start(groups, column / 32);
    }
    tile.multiply(stage, b, flip);
    if (folding.begins_at(column + 32)) tile.fold(groups, (column & -folding.columns) / 32);
  }
}

template <class Weights, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    float_gemm(const LEQ_GRID_CONSTANT typename Weights::Arguments a) {
  LEQ_BOUNDS(Shape::kThreads);
  using Memory = FloatGemmMemory<Weights, Shape>;
  constexpr int kOfBlock = kBlockColumns / Shape::kKTile;  // K tiles
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  auto* const groups =
      reinterpret_cast<typename Memory::Groups*>(memory + Shape::kStages * Memory::kStageBytes);
  const GemmRows<Shape> rows(a);
  const Folding folding = Weights::folding(a);
  const std::uint32_t flip = Weights::flip(a);
  const int k_tiles = static_cast<int>(padded_columns(a.columns)) / Shape::kKTile;
  const WeightCopies<Weights, Shape> weights(a, rows);
  const TermCopies<Weights, Shape> inputs(a.x, a.tokens, rows);
  for (int k_tile = 0; k_tile < min(Shape::kStages - 1, k_tiles); ++k_tile) {
    weights.load(memory + k_tile * Memory::kStageBytes + Memory::Terms::kBytes, k_tile);
  }
  BlockGroups<Weights, Shape> next;
  if constexpr (Weights::kScaled) {
    next.load(a, rows, 0, folding);
    next.store(groups[0]);
  }
  ptx::wait_for_predecessor();
  for (int k_tile = 0; k_tile < Shape::kStages - 1; ++k_tile) {
    if (k_tile < k_tiles) inputs.load(memory + k_tile * Memory::kStageBytes, k_tile);
    ptx::cp_async_commit();
  }
  FloatWarpTile<Weights, Shape> tile;
  // Offsets of the current K tile's stage, and of the preceding K tile's stage, which is free.
  int stage = 0, free = (Shape::kStages - 1) * Memory::kStageBytes;
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    // Makes the K tile visible to all threads; the preceding stage is then free.
    __syncthreads();
    const int ahead = k_tile + Shape::kStages - 1;
    if (ahead < k_tiles) {
      weights.load(memory + free + Memory::Terms::kBytes, ahead);
      inputs.load(memory + free, ahead);
    }
    ptx::cp_async_commit();
    const int block = k_tile / kOfBlock, part = k_tile % kOfBlock;
    if constexpr (Weights::kScaled) {
      if (part == 0) next.load(a, rows, block + 1, folding);
    }
    multiply_k_tile<Weights, Shape>(tile, memory + stage, groups[block % 2],
                                    k_tile * (Shape::kKTile / 32), folding, flip);
    if constexpr (Weights::kScaled) {
      if (part == kOfBlock - 1) next.store(groups[(block + 1) % 2]);
    }
    free = stage;
    stage = stage == (Shape::kStages - 1) * Memory::kStageBytes ? 0 : stage + Memory::kStageBytes;
  }
  ptx::let_successor_start();
  tile.finish_all(a, rows);
}

namespace {

// Tiles have 8 tokens x 16 or 32 outputs, 64 x 64, and 128 x 128, or 64 x 128 for codes of 3 and 2
// bits. A block has at most 99 KB of shared memory, the limit of an RTX 4090.
struct KTilesOf32 {
  using Middle = FloatGemmShape<64, 64, 2, 2, 32, 4>;
  using Large = FloatGemmShape<128, 128, 2, 4, 32, 4>;
};
template <class Weights>
struct FloatShapes;
template <>
struct FloatShapes<HalfWeights<2>> : KTilesOf32 {
  using Few = FloatGemvShape<1, 2>;
};
template <>
struct FloatShapes<HalfWeights<3>> : KTilesOf32 {
  using Few = FloatGemvShape<1, 2>;
  using Large = FloatGemmShape<128, 128, 2, 4, 32, 3>;
};
template <>
struct FloatShapes<CodeWeights<8>> : KTilesOf32 {
  using Few = FloatGemvShape<1, 4>;
};
template <>
struct FloatShapes<CodeWeights<4>> : KTilesOf32 {
  using Few = FloatGemvShape<2, 3>;
};
template <>
struct FloatShapes<CodeWeights<3>> {
  using Few = FloatGemvShape<2, 4>;
  using Middle = FloatGemmShape<64, 64, 2, 2, 128, 2>;
  using Large = FloatGemmShape<64, 128, 4, 2, 128, 2>;
};
template <>
struct FloatShapes<CodeWeights<2>> : FloatShapes<CodeWeights<3>> {};

template <class Weights>
void launch_terms(const typename Weights::Arguments& a, FloatTile tile, rt::Stream& stream) {
  using Shapes = FloatShapes<Weights>;
  const auto launch = [&]<class Shape>(const char* name, auto kernel, Shape, int bytes) {
    rt::run(stream,
            {name, tiles_of<Shape>(a), Shape::kThreads, static_cast<std::size_t>(bytes),
             rt::Start::early},
            kernel, a);
  };
  const auto launch_gemm = [&]<class Shape>(Shape shape) {
    launch("float_gemm", float_gemm<Weights, Shape>, shape,
           FloatGemmMemory<Weights, Shape>::kBytes);
  };
  if (tile == FloatTile::middle) return launch_gemm(typename Shapes::Middle());
  if (tile == FloatTile::large) return launch_gemm(typename Shapes::Large());
  using Shape = typename Shapes::Few;
  int group = kBlockColumns;
  if constexpr (Weights::kScaled) {
    if (a.segments[0].weight.group > 0) group = a.segments[0].weight.group;
  }
  launch("float_gemv", float_gemv<Weights, Shape>, Shape(),
         FloatGemvMemory<Weights, Shape>::bytes(group));
}

}  // namespace

void launch_float_gemm(const FloatMatmul& a, FloatTile tile, rt::Stream& stream) {
  const bool f16 = a.segments[0].weight.type == FloatType::f16;
  return f16 ? launch_terms<HalfWeights<2>>(a, tile, stream)
             : launch_terms<HalfWeights<3>>(a, tile, stream);
}

void launch_float_gemm(const WeightOnlyMatmul& a, FloatTile tile, rt::Stream& stream) {
  launch_by_bits(a.segments[0].weight.bits,
                 [&]<int bits>() { launch_terms<CodeWeights<bits>>(a, tile, stream); });
}

}  // namespace leq::LEQ_GPU
