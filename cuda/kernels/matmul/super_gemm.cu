// Many tokens times weights of a k type on the tensor cores, with the bits of super_gemv. The
// product of a code and its sub-scale has up to 14 bits, w = 128 h + l with signed bytes h and l. A
// block expands each K tile to two planes of such bytes in shared memory while it multiplies the
// preceding K tile: first h, then l on 128 times these sums. Minima are a third operand of bytes.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_gemm.cuh"
#include "cuda/kernels/matmul/super_row.cuh"

namespace leq::LEQ_GPU {
namespace {

using SuperMiddle = GemmShape<64, 64, 2, 2, 2>;
using SuperLarge = GemmShape<128, 128, 2, 4, 2>;

// The planes of a SuperMatmul, whose other arguments are those of an int8 matmul with groups.
struct SuperPlanes {
  SuperWeight weights[kMaxSegments];
  int scale_step = 1;  // scales of a token per group; 0 if it has one scale
};

// What a block holds of a K tile. Rows of supers and tokens of scales are in LaneOrder.
template <class Shape, int bits, int group>
struct alignas(16) SuperTile {
  static constexpr int kGroups = kKTile / group, kSupers = SuperRow<bits>::kSupers;
  unsigned char high[Shape::kRows * kKTile], low[Shape::kRows * kKTile];
  unsigned char tokens[Shape::kTokens * kKTile];
  std::uint16_t supers[kSupers][Shape::kRows];
  std::uint32_t minima[Shape::kRows];  // a byte for each 32 columns
  float token_scale[kGroups][Shape::kTokens];
};

// 64 columns of one row of a K tile, in transit from global to shared memory, and a token's scales.
template <class Shape, int bits, int group>
struct SuperLoads {
  using Tile = SuperTile<Shape, bits, group>;
  static constexpr int kHighBits = bits - 4, kHighWords = 2 * kHighBits;
  static_assert(Shape::kThreads == 2 * Shape::kRows && Shape::kThreads >= Shape::kTokens);
  int row, half;                        // of the tile
  int place, super_place, token_place;  // of what the thread stores
  SuperRow<bits> from;
  const float* token_scales;
  int scale_step;
  std::uint32_t low[8], high[kHighWords > 0 ? kHighWords : 1];
  std::uint8_t subs[4];  // s and m of two sub-blocks, or s of four
  std::uint16_t super = 0;
  float scales[Tile::kGroups];

  __device__ __forceinline__ SuperLoads(const IntMatmul& a, const SuperPlanes& planes,
                                        const GemmRows<Shape>& rows)
      : row(static_cast<int>(threadIdx.x) % Shape::kRows),
        half(ptx::opaque(threadIdx.x / Shape::kRows)),
        place(ptx::opaque(static_cast<unsigned>(swizzled<8>(row, half * 4)))),
        super_place(ptx::opaque(static_cast<unsigned>(LaneOrder<Shape>::row(row)))),
        token_place(ptx::opaque(static_cast<unsigned>(
            LaneOrder<Shape>::token(static_cast<int>(threadIdx.x) % Shape::kTokens)))),
        from(planes.weights[rows.paired ? row / 8 % 2 : rows.segment],
             min(std::int64_t{rows.first} + rows.offset(row), rows.of(a, row).rows - 1),
             round_up_to(a.columns, kKTile)),
        scale_step(planes.scale_step) {
    const std::int64_t token = rows.first_token + static_cast<int>(threadIdx.x) % Shape::kTokens;
    token_scales = ptx::opaque(a.x.scales + min(token, a.tokens - 1) * a.x.scale_stride);
    from.codes = ptx::opaque(from.codes);
    from.high = ptx::opaque(from.high);
    from.subs = ptx::opaque(from.subs);
    from.supers = ptx::opaque(from.supers);
  }

  // May precede the wait, because no kernel writes weights.
  __device__ __forceinline__ void load_weights(int k_tile) {
    const int run =
        ptx::opaque(static_cast<unsigned>(k_tile * 8 + half * 4));  // in units of 16 columns
    const std::uint8_t* const codes = from.codes + std::int64_t{run} * 512;
#pragma unroll
    for (int i = 0; i < 8; ++i) low[i] = *reinterpret_cast<const std::uint32_t*>(codes + i * 256);
    const std::uint8_t* const upper = from.high + std::int64_t{run} * (128 * kHighBits);
#pragma unroll
    for (int i = 0; i < kHighWords; ++i) {
      high[i] = *reinterpret_cast<const std::uint32_t*>(upper + i * 256);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) subs[i] = from.subs[(run + i) * kPanel];
    if (half < Tile::kSupers) super = from.supers[(k_tile / 2 * Tile::kSupers + half) * kPanel];
  }
  __device__ __forceinline__ void load_scales(int k_tile) {
#pragma unroll
    for (int g = 0; g < Tile::kGroups; ++g) {
      scales[g] = token_scales[(k_tile * Tile::kGroups + g) * scale_step];
    }
  }

  __device__ __forceinline__ void store(Tile& to) const {
#pragma unroll
    for (int run = 0; run < 4; ++run) store_run(to, run);
    if (half < Tile::kSupers) to.supers[half < Tile::kSupers ? half : 0][super_place] = super;
    if constexpr (bits != 6) {
      auto* const minima = reinterpret_cast<std::uint16_t*>(to.minima + row);
      minima[half] = static_cast<std::uint16_t>(subs[1] | subs[3] << 8);
    }
    if (threadIdx.x >= Shape::kTokens) return;
#pragma unroll
    for (int g = 0; g < Tile::kGroups; ++g) {
      to.token_scale[g][token_place] = scales[g];
    }
  }

 private:
  // Expands 16 columns. Pairs of products are computed in 16-bit halves of a word. For 6 bits, with
  // s' = s + 128, these are s' (u - 32) + 8192 = 128 h' + l, and h = h' - 64 - (u - 32).
  __device__ __forceinline__ void store_run(Tile& to, int run) const {
    constexpr std::uint32_t kHalves = 0x00010001u;
    const std::uint32_t sub = subs[bits == 6 ? run : run / 2 * 2];
    const std::uint32_t scale = bits == 6 ? sub ^ 128u : sub;
    const std::uint32_t added = bits == 6 ? (8192u - 32u * scale) * kHalves : 0u;
    std::uint32_t h[4], l[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      constexpr int kQuads = kHighBits == 0 ? 1 : 8 / kHighBits;  // of a word of upper bits
      const int q = run * 4 + j;
      const std::uint32_t codes =
          super_quad<bits>(low[q / 2], q % 2, high[kHighBits == 0 ? 0 : q / kQuads], q % kQuads);
      const std::uint32_t even = (codes & 255u * kHalves) * scale + added;
      const std::uint32_t odd = (codes >> 8 & 255u * kHalves) * scale + added;
      l[j] = (even & 127u * kHalves) | (odd << 8 & (127u * kHalves) << 8);
      h[j] = (even >> 7 & 255u * kHalves) | (odd << 1 & (255u * kHalves) << 8);
      if constexpr (bits == 6) h[j] = ((h[j] | kTopBits) - (codes + 32u * kOnes)) ^ kTopBits;
    }
    const int at = place ^ run * 16;
    *reinterpret_cast<uint4*>(to.high + at) = {h[0], h[1], h[2], h[3]};
    *reinterpret_cast<uint4*>(to.low + at) = {l[0], l[1], l[2], l[3]};
  }
};

// Minima of a warp's rows as operand B: all columns of a step have one.
template <class Shape>
struct MinimaOperand {
  std::uint32_t words[Shape::kMmaAcross];

  __device__ __forceinline__ MinimaOperand(const std::uint32_t* minima, int first_row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int j = 0; j < Shape::kMmaAcross; ++j) {
      words[j] = minima[first_row - lane % 4 * 2 + lane / 4 + j * 8];
    }
  }
  // The high bit of minima if `shift` is 7, else the other seven, as bytes are signed.
  __device__ __forceinline__ void operand(int j, int step, std::uint32_t shift,
                                          std::uint32_t (&b)[2]) const {
    b[0] = b[1] = (words[j] >> step * 8 >> shift & (shift == 7 ? 1u : 127u)) * kOnes;
  }
};

template <class Shape, int bits, int group>
struct SuperProducts {
  using Tile = SuperTile<Shape, bits, group>;
  static constexpr int kSteps = group / 32;
  WarpTile<Shape, 8, 128> warp;

  __device__ __forceinline__ void add_plane(const Tile& tile, const unsigned char* plane,
                                            int first) {
#pragma unroll 2
    for (int step = first; step < first + kSteps; ++step) {
      KTileCodes<Shape, 8> codes;
      codes.load(plane, warp.codes_place, step * 2);
      warp.multiply(tile.tokens, codes, step, 0);
    }
  }
  // total = fma(sign * sum, super * scale of the token, total)
  __device__ __forceinline__ void flush(const Tile& tile, int which, int g, float sign) {
    const std::uint16_t* const supers = tile.supers[which] + warp.rows_run;
    const auto scales = warp.of_tokens(tile.token_scale[g]);
    warp.for_sums([&](int across, int down, int i) {
      const float scale = ptx::f16_to_f32(supers[across * 2 + i % 2]) * scales[down * 2 + i / 2];
      float& total = warp.totals[down][across][i].total;
      total = fmaf(sign * static_cast<float>(warp.sums[down][across][i]), scale, total);
    });
  }
  __device__ __forceinline__ void multiply(const Tile& tile) {
#pragma unroll 1
    for (int g = 0; g < Tile::kGroups; ++g) {
      warp.start(0);
      add_plane(tile, tile.high, g * kSteps);
      for_each_of(warp.sums, [](int& sum) { sum *= 128; });
      add_plane(tile, tile.low, g * kSteps);
      flush(tile, 0, g, 1.0f);
      if constexpr (bits != 6) {
        const MinimaOperand<Shape> minima(tile.minima, warp.first_row);
        warp.start(0);
        for (const std::uint32_t shift : {7u, 0u}) {
          for_each_of(warp.sums, [](int& sum) { sum *= 128; });
#pragma unroll 1
          for (int step = g * kSteps; step < (g + 1) * kSteps; ++step) {
            warp.multiply(tile.tokens, minima, step, shift);
          }
        }
        flush(tile, 1, g, -1.0f);
      }
    }
  }
};

template <class Shape, int bits, int group>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    super_gemm(const LEQ_GRID_CONSTANT IntMatmul a, const LEQ_GRID_CONSTANT SuperPlanes planes) {
  using Tile = SuperTile<Shape, bits, group>;
  LEQ_BOUNDS(Shape::kThreads);
  LEQ_DYNAMIC_SHARED(Tile, tiles);
  const GemmRows<Shape> rows(a);
  const int k_tiles = static_cast<int>(round_up_to(a.columns, kKTile)) / kKTile;
  TokenCopies<Shape> tokens(a, rows);
  SuperLoads<Shape, bits, group> next(a, planes, rows);
  SuperProducts<Shape, bits, group> products;
  next.load_weights(0);
  ptx::wait_for_predecessor();
  next.load_scales(0);
  tokens.load(tiles[0].tokens, 0);
  ptx::cp_async_commit();
  next.store(tiles[0]);
  const auto load = [&](int k_tile) {
    if (k_tile >= k_tiles) return;
    next.load_weights(k_tile);
    next.load_scales(k_tile);
  };
  load(1);
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    ptx::cp_async_wait<0>();
    // Makes the K tile visible to all threads; the other is then free.
    __syncthreads();
    if (k_tile + 1 < k_tiles) {
      Tile& other = tiles[(k_tile + 1) % 2];
      tokens.load(other.tokens, k_tile + 1);
      ptx::cp_async_commit();
      next.store(other);
      load(k_tile + 2);
    }
    products.multiply(tiles[k_tile % 2]);
  }
  ptx::let_successor_start();
  products.warp.finish_all(a, rows);
}

template <class Shape, int bits, int group>
void launch(const IntMatmul& a, const SuperPlanes& planes, rt::Stream& stream) {
  rt::run(stream,
          {"super_gemm", tiles_of<Shape>(a), Shape::kThreads,
           2 * sizeof(SuperTile<Shape, bits, group>), rt::Start::early},
          super_gemm<Shape, bits, group>, a, planes);
}

template <int bits>
void launch_bits(const IntMatmul& a, const SuperPlanes& planes, int group, bool large,
                 rt::Stream& stream) {
  if (group == 32) return launch<SuperMiddle, bits, 32>(a, planes, stream);
  if (large) return launch<SuperLarge, bits, 128>(a, planes, stream);
  launch<SuperMiddle, bits, 128>(a, planes, stream);
}

}  // namespace

void launch_super_gemm(const SuperMatmul& a, bool large, rt::Stream& stream) {
  IntMatmul made;  // scales of groups are in the sums, as in int8 matmuls with groups
  SuperPlanes planes;
  for (int i = 0; i < a.segment_count; ++i) {
    made.segments[i].weight.group = 128;
    made.segments[i].bias = a.segments[i].bias;
    made.segments[i].rows = a.segments[i].rows;
    planes.weights[i] = a.segments[i].weight;
  }
  made.segment_count = a.segment_count;
  made.tokens = a.tokens;
  made.columns = a.columns;
  made.x = a.x;
  made.x.group = 128;
  made.finish = a.finish;
  made.out = a.out;
  planes.scale_step = a.x.group > 0 ? 1 : 0;
  switch (a.segments[0].weight.bits) {
    case 4:
      return launch_bits<4>(made, planes, a.x.group, large, stream);
    case 5:
      return launch_bits<5>(made, planes, a.x.group, large, stream);
    default:
      return launch_bits<6>(made, planes, a.x.group, large, stream);
  }
}

}  // namespace leq::LEQ_GPU
