// Shared memory of attention on the tensor cores: the queries of a block, and tiles of 64 keys and
// values that are in flight. A tile is the part of one page that belongs to one kv head.
#pragma once

#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/kernels/attention/attention_block.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kTile = kKvPageTokens;

// The partition of a block. A warp has 16 * row_tiles queries and dims / column_warps columns of
// their outputs. Warps that share queries (two in a prompt, all four in generation) also divide the
// scores: each computes those of an equal part of a tile's keys and passes its weights to the other
// warps. Outputs do not depend on the partition.
template <KvType type, int dims, int row_warps, int column_warps, int row_tiles, int stages,
          int blocks>
struct TensorShape {
  static constexpr bool kCoded = stored_coded(type);  // keys and values are int8 codes
  static constexpr int kNumberBytes = stored_number_bytes(type);
  static constexpr int kDims = dims;  // head_dim, padded
  static constexpr int kRowWarps = row_warps, kRowTiles = row_tiles, kStages = stages;
  static constexpr int kAhead = stages > 1 ? stages - 1 : 1;  // tiles in flight
  static constexpr int kColumnWarps = column_warps;           // warps that share queries
  static constexpr int kColumns = dims / column_warps;        // columns of a warp
  static constexpr int kThreads = 32 * row_warps * column_warps;
  static constexpr int kQueries = 16 * row_tiles * row_warps;
  static constexpr int kBlocks = blocks;  // blocks that a multiprocessor should hold
  static constexpr bool kShares = column_warps > 1;
  static constexpr bool kGeneration = column_warps == 4;
  static constexpr int kKeyTiles = kTile / 8 / column_warps;  // a warp's tiles of eight keys
  // Weights are exp(score - largest) * 2^12, so that small weights keep precision in f16; the
  // factor cancels in the division by their sum. With coded values the exponent is 6, because
  // weights are multiplied by the values' scale too, which reaches 2 * 65504 / 255.
  static constexpr float kWeightBits = kCoded ? 6.0f : 12.0f;
  static constexpr int kShifts = kCoded ? 1 : 0;  // 1: all columns share a sum
  static_assert(column_warps <= 2 || (kGeneration && row_warps == 1 && row_tiles == 1));
  static_assert(kColumns % 16 == 0 && dims % 32 == 0);
};

// Rows of 16-byte chunks. ldmatrix reads chunks with the same index of eight rows at once, so these
// chunks are placed in different banks.
template <int bytes>
struct ChunkRows {
  static constexpr int kChunks = bytes / 16;
  static constexpr bool kSwizzled = kChunks % 8 == 0;  // otherwise one chunk of padding per row
  static constexpr int kStride = (kSwizzled ? kChunks : kChunks + 1) * 16;
  static_assert(kChunks % 2 == 0);

  static __device__ __forceinline__ int at(int row, int chunk) {
    return row * kStride + (kSwizzled ? chunk ^ (row & 7) : chunk) * 16;
  }
};

// Data of a tile that the four warps of a block for generation exchange.
struct TileShare {
  float largest[16][4];  // each query's largest score in each warp
  // For both queries of a lane: sum of weights, and sum of weights times the codes' middle.
  float4 sums[4][32];
  uint4 weights[4][32];  // operands of the product with values
};

// Data that a pair of warps exchanges; each warp writes its own slot.
template <class Shape>
struct PairShare {
  static constexpr int kSums = Shape::kCoded ? 2 : 1;  // kinds of sums, of 32 keys each
  float largest[2][8][2 * Shape::kRowTiles];           // the queries of four lanes
  float2 sums[2][Shape::kRowTiles][kSums][32];
  uint4 weights[2][Shape::kRowTiles][2][32];
};

template <class Shape>
struct TileMemory {
  using Rows = ChunkRows<Shape::kDims * Shape::kNumberBytes>;  // of keys or of values
  // The bytes of the scales of 64 positions, followed by their minima.
  static constexpr int kEnds = Shape::kCoded ? 4 * kTile : 0;
  // A stage contains keys, values, scales and minima of keys, then those of values.
  static constexpr int kValuesAt = kTile * Rows::kStride;
  static constexpr int kKeyEndsAt = 2 * kValuesAt;
  static constexpr int kValueEndsAt = kKeyEndsAt + kEnds;
  static constexpr int kStageBytes = kValueEndsAt + kEnds;
  // After the stages come queries in the type of the keys (for int8 with scale and sum of codes),
  // the data that four warps exchange, expanded operands of values, and the block's QueryBlock.
  // Data of pairs of warps reuses the memory of the queries after these are in registers.
  static constexpr bool kPairs = Shape::kColumnWarps == 2;
  static constexpr int kPairBytes =
      kPairs ? Shape::kRowWarps * static_cast<int>(sizeof(PairShare<Shape>)) : 0;
  static constexpr int kQueryBytes = Shape::kQueries * Rows::kStride;
  static constexpr int kQueriesAt = Shape::kStages * kStageBytes;
  static constexpr int kFactsAt =
      kQueriesAt + (kQueryBytes > kPairBytes ? kQueryBytes : kPairBytes);
  static constexpr int kShareAt = kFactsAt + (Shape::kCoded ? Shape::kQueries * 8 : 0);
  // A prompt's block expands the codes of values into operands once for all its warps, if eight
  // warps use them and shared memory suffices beside two stages.
  static constexpr bool kExpands = Shape::kCoded && Shape::kThreads == 256 && Shape::kDims <= 128;
  static constexpr int kOperandsAt =
      kShareAt + (Shape::kGeneration ? static_cast<int>(sizeof(TileShare)) : 0);
  static constexpr int kBlockAt = kOperandsAt + (kExpands ? kTile * Shape::kDims * 2 : 0);
  static constexpr int kBytes = kBlockAt + static_cast<int>(sizeof(QueryBlock));
};

// The tiles all of whose positions are in a range.
struct WholeTiles {
  int first, count;

  __device__ __forceinline__ explicit WholeTiles(Positions of)
      : first((of.first + kTile - 1) / kTile), count(max(0, of.last / kTile - first)) {}
  __device__ __forceinline__ bool holds(int tile) const {
    return static_cast<unsigned>(tile - first) < static_cast<unsigned>(count);
  }
};

// Loads the tiles of positions `seen` in order. Rows of other positions, and columns beyond the
// head, become 0. In generation, tiles whose positions are all visible and whose heads are as wide
// as the shape are copied faster, with one address per thread and constant offsets.
template <class Shape>
class TileLoader {
  using Memory = TileMemory<Shape>;
  using Rows = typename Memory::Rows;

 public:
  __device__ __forceinline__ TileLoader(const AttentionArguments& a, const QueryBlock& block,
                                        Positions seen, unsigned char* memory)
      : a_(a),
        block_(block),
        seen_(seen),
        whole_(seen),
        memory_(memory),
        next_(seen.first / kTile),
        end_((seen.last + kTile - 1) / kTile),
        page_(block.pages[next_]) {
    if constexpr (Shape::kGeneration) place_whole_tiles();
  }

  __device__ __forceinline__ unsigned char* stage(int tile) const {
    return memory_ + tile % Shape::kStages * Memory::kStageBytes;
  }

  // Whether the next tile, if there is one, can be copied before the wait for the predecessor.
  __device__ __forceinline__ bool next_is_settled() const {
    return next_ >= end_ || (next_ + 1) * kTile <= block_.settled;
  }
  // Starts copying the next tile, if there is one, and commits one group of copies in any case.
  __device__ __forceinline__ void load_next() {
    if (next_ < end_) {
      unsigned char* const to = stage(next_);
      if constexpr (Shape::kGeneration) {
        if (whole_.holds(next_) && a_.heads.head_dim == Shape::kDims) {
          copy_whole(to);
        } else {
          copy_visible(to);
        }
      } else {
        copy_visible(to);
      }
      ++next_;
      if (next_ < end_) page_ = block_.pages[next_];
    }
    ptx::cp_async_commit();
  }

  // Clears the scales of values at positions of a loaded tile that are not visible to any query.
  // Their page contents are undefined, and 0 times an undefined number may not be 0.
  __device__ __forceinline__ void clear_unseen_ends(int tile) const {
    if constexpr (Shape::kCoded) {
      if (whole_.holds(tile)) return;
      auto* const ends = reinterpret_cast<std::uint16_t*>(stage(tile) + Memory::kValueEndsAt);
      for (int i = static_cast<int>(threadIdx.x); i < 2 * kTile; i += Shape::kThreads) {
        if (!seen_.holds(tile * kTile + i % kTile)) ends[i] = 0;
      }
      __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ void copy_visible(unsigned char* to) const {
    const KvHeadPage keys = kv_head_page(a_.keys, page_, a_.heads, block_.kv_head);
    const KvHeadPage values = kv_head_page(a_.values, page_, a_.heads, block_.kv_head);
    copy_rows(to, keys);
    copy_rows(to + Memory::kValuesAt, values);
    if constexpr (Shape::kCoded) {
      copy_ends(to + Memory::kKeyEndsAt, keys);
      copy_ends(to + Memory::kValueEndsAt, values);
    }
  }

  __device__ __forceinline__ void copy_whole(unsigned char* to) const {
    copy_whole_rows(to, page_at(keys_, a_.keys.page_bytes));
    copy_whole_rows(to + Memory::kValuesAt, page_at(values_, a_.values.page_bytes));
    if constexpr (Shape::kCoded) {
      if (threadIdx.x >= 32) return;
      ptx::cp_async16(to + Memory::kKeyEndsAt + threadIdx.x * 16, page_at(ends_, ends_stride_),
                      true);
    }
  }
  // The cast is safe because a page of one layer has less than 2^31 bytes.
  __device__ __forceinline__ const std::byte* page_at(const std::byte* base,
                                                      std::int64_t bytes) const {
    return base + std::int64_t{page_} * static_cast<int>(bytes);
  }
  __device__ __forceinline__ void copy_whole_rows(unsigned char* to, const std::byte* from) const {
    constexpr int kRows = Shape::kThreads / Rows::kChunks;
    static_assert(Shape::kThreads % Rows::kChunks == 0);
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread / Rows::kChunks, chunk = thread % Rows::kChunks;
    // Rows whose distance is a multiple of eight have the same swizzle of chunks.
    constexpr int kAlike = kRows % 8 == 0 ? 1 : 8 / kRows;
#pragma unroll
    for (int i = 0; i < kTile / kRows; ++i) {
      unsigned char* const first = to + Rows::at(row + i % kAlike * kRows, chunk);
      ptx::cp_async16(first + i / kAlike * kAlike * kRows * Rows::kStride,
                      from + i * Shape::kThreads * 16, true);
    }
  }
  // Computes the base addresses, as for page 0, of this thread's part of whole tiles. Lanes 0..15
  // of the first warp load scales and minima of keys, lanes 16..31 those of values.
  __device__ __forceinline__ void place_whole_tiles() {
    constexpr int kBytes = kTile * Shape::kDims * Shape::kNumberBytes;
    const int thread = static_cast<int>(threadIdx.x);
    keys_ = a_.keys.base + block_.kv_head * kBytes + thread * 16;
    values_ = a_.values.base + block_.kv_head * kBytes + thread * 16;
    if constexpr (Shape::kCoded) {
      const int lane = static_cast<int>(threadIdx.x % 32), kv_heads = a_.heads.kv_heads;
      const KvPages& pages = lane < 16 ? a_.keys : a_.values;
      const int head = block_.kv_head + (lane % 16 < 8 ? 0 : kv_heads);
      ends_ = pages.base + std::int64_t{kv_heads} * kBytes + head * (2 * kTile) + lane % 8 * 16;
      ends_stride_ = pages.page_bytes;
    }
  }

  __device__ __forceinline__ void copy_rows(unsigned char* to, const KvHeadPage& page) const {
    const int thread = ptx::opaque(threadIdx.x), row_bytes = static_cast<int>(page.row_bytes);
    const auto copy = [&](int row, int chunk) {
      const bool valid = chunk * 16 < row_bytes && seen_.holds(next_ * kTile + row);
      ptx::cp_async16(to + Rows::at(row, chunk),
                      page.numbers + (valid ? row * row_bytes + chunk * 16 : 0), valid);
    };
    if constexpr (Shape::kThreads % Rows::kChunks == 0) {
      // A thread copies the same chunk of each of its rows.
      constexpr int kRows = Shape::kThreads / Rows::kChunks;
#pragma unroll
      for (int row = 0; row < kTile; row += kRows) {
        copy(row + thread / Rows::kChunks, thread % Rows::kChunks);
      }
    } else {
#pragma unroll 2
      for (int i = thread; i < kTile * Rows::kChunks; i += Shape::kThreads) {
        copy(i / Rows::kChunks, i % Rows::kChunks);
      }
    }
  }
  __device__ __forceinline__ void copy_ends(unsigned char* to, const KvHeadPage& page) const {
    const int i = static_cast<int>(threadIdx.x);
    constexpr int kChunks = 2 * kTile / 16;
    static_assert(Shape::kThreads >= 2 * kChunks);
    if (i >= 2 * kChunks) return;
    const std::uint16_t* const from = i < kChunks ? page.scales : page.minima;
    ptx::cp_async16(to + i * 16, from + i % kChunks * 8, true);
  }

  const AttentionArguments& a_;
  const QueryBlock& block_;
  Positions seen_;
  WholeTiles whole_;
  unsigned char* memory_;
  int next_, end_, page_;
  const std::byte *keys_ = nullptr, *values_ = nullptr, *ends_ = nullptr;
  std::int64_t ends_stride_ = 0;
};

// A query that four lanes share; each lane has four of every 16 columns.
template <class Shape>
using QueryPart = float4[Shape::kDims / 16];

template <class Shape>
__device__ __forceinline__ void store_halves(const QueryPart<Shape>& x, int query,
                                             unsigned char* to) {
  constexpr float kMost = 65504.0f;
  const int part = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < Shape::kDims / 16; ++i) {
    const float numbers[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
    float kept[4];
    for (int k = 0; k < 4; ++k) kept[k] = fminf(fmaxf(numbers[k], -kMost), kMost);
    *reinterpret_cast<uint2*>(to + TileMemory<Shape>::Rows::at(query, 2 * i + part / 2) +
                              part % 2 * 8) = {ptx::f16x2_of(kept[0], kept[1]),
                                               ptx::f16x2_of(kept[2], kept[3])};
  }
}

// Writes codes by the rule of docs/numerics.md. Returns their scale times log2 e, and their sum.
template <class Shape>
__device__ __forceinline__ float2 store_codes(const QueryPart<Shape>& x, int query,
                                              unsigned char* to) {
  const int part = static_cast<int>(threadIdx.x % 4);
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < Shape::kDims / 16; ++i) {
    largest = max(largest, max(max(magnitude_bits(x[i].x), magnitude_bits(x[i].y)),
                               max(magnitude_bits(x[i].z), magnitude_bits(x[i].w))));
  }
  for (int step = 1; step < 4; step *= 2) {
    largest = max(largest, __shfl_xor_sync(kEveryLane, largest, step));
  }
  const StepSize step_of_query = step_size(largest);
  int sum = 0;
#pragma unroll
  for (int i = 0; i < Shape::kDims / 16; ++i) {
    const float numbers[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
    unsigned packed = 0;
    for (int k = 0; k < 4; ++k) {
      const int code = code_of(numbers[k], step_of_query.inverse);
      packed |= (static_cast<unsigned>(code) & 0xffu) << 8 * k;
      sum += code;
    }
    *reinterpret_cast<unsigned*>(to + TileMemory<Shape>::Rows::at(query, i) + part * 4) = packed;
  }
  for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(kEveryLane, sum, step);
  return {step_of_query.scale * kLog2E, static_cast<float>(sum)};
}

// Loads the block's queries in the type of the keys: f16, or codes with their scale and sum.
// Columns beyond the head and missing queries become 0.
template <class Shape>
__device__ __forceinline__ void load_queries(const AttentionArguments& a, const QueryBlock& block,
                                             unsigned char* memory) {
  const int part = static_cast<int>(threadIdx.x % 4), dims = a.heads.head_dim;
  for (int query = static_cast<int>(threadIdx.x) / 4; query < Shape::kQueries;
       query += Shape::kThreads / 4) {
    const bool there = query < block.queries();
    const std::int64_t row = block.row + query / block.heads;
    const std::int64_t head = block.head + query % block.heads;
    const float* const from = a.qkv.values + row * a.qkv.stride + head * dims;
    QueryPart<Shape> x;
#pragma unroll
    for (int i = 0; i < Shape::kDims / 16; ++i) {
      const int column = 16 * i + 4 * part;
      x[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (there && column < dims) x[i] = *reinterpret_cast<const float4*>(from + column);
    }
    if constexpr (Shape::kCoded) {
      const float2 facts = store_codes<Shape>(x, query, memory + TileMemory<Shape>::kQueriesAt);
      if (part != 0) continue;
      reinterpret_cast<float2*>(memory + TileMemory<Shape>::kFactsAt)[query] = facts;
    } else {
      store_halves<Shape>(x, query, memory + TileMemory<Shape>::kQueriesAt);
    }
  }
}

}  // namespace leq::LEQ_GPU
