// Shared memory of attention over packed codes. It has the same parts as for f16 pages (one stage,
// queries, data shared by warps) and tiles of codes in flight, laid out as in pages, with their
// scales and minima. The f16 stage has f16 copies; in a prompt's block it is also used for operands
// that are expanded from a tile's codes, once for all warps.
#pragma once

#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/kernels/attention/attention_tile_values.cuh"
#include "cuda/kernels/attention/kv_packed.cuh"
#include "cuda/kernels/attention/kv_page.cuh"
#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {

// Packed codes as operands of mma m16n8k16: the bits of a code u, extracted from its word, become
// the low bits of an f16, which is then a subnormal number: u 2^-24, or a few powers of two more.
// This number and its product with any f16 are exact. The power is the same along a sum and is
// removed from the finished sum (code_unit), so that nothing is subtracted from codes or sums.

// The factor that converts a sum of codes' f16 numbers, for columns 8 n ... 8 n + 7 of a unit.
__device__ constexpr float code_unit(int n) {
  // The codes of the upper columns begin at bit 4 of their half word instead of at bit 0.
  return n == 0 ? 16777216.0f : 1048576.0f;
}

// A lane's part of 16 positions x 16 channels: b[n][k] is the register for columns 8 n ... 8 n + 7
// and rows 8 k ... 8 k + 7 of the operand.
struct UnitOperand {
  std::uint32_t b[2][2];
};

// Unpacks a lane's word of a unit (cuda/layout/kv_codes.h).
template <KvPart part>
__device__ __forceinline__ UnitOperand unit_of_word(std::uint32_t word) {
  UnitOperand unit;
  constexpr std::uint32_t kLow = 0x000f000fu, kHigh = kLow << 4;
  const std::uint32_t next = word >> (part == KvPart::values ? 8 : 4);
  unit.b[0][0] = word & kLow;
  unit.b[0][1] = next & kLow;
  if constexpr (part == KvPart::keys) {
    unit.b[1][0] = next & kHigh;
    unit.b[1][1] = word >> 8 & kHigh;
  } else {
    unit.b[1][0] = word & kHigh;
    unit.b[1][1] = next & kHigh;
  }
  return unit;
}

// `words` are the codes of the head in its page.
template <KvPart part>
__device__ __forceinline__ UnitOperand unit_of_codes(const std::uint32_t* words, int dims, int s16,
                                                     int c16, int lane) {
  return unit_of_word<part>(words[kv_lane_word(part, dims, s16, c16, lane)]);
}

// Scales, or minima, at a lane's indices k of a unit: two neighbours, and the two at k + 8.
struct UnitEnds {
  std::uint32_t near, far;
};
// Loads scales or minima of values, along positions, for two units.
struct TwoUnitEnds {
  UnitEnds unit[2];

  __device__ __forceinline__ TwoUnitEnds(const std::uint16_t* from, int two, unsigned lane) {
    const uint4 all = reinterpret_cast<const uint4*>(from + 32 * two)[lane % 4];
    unit[0] = {all.x, all.y};
    unit[1] = {all.z, all.w};
  }
};
// Loads scales or minima of keys, along channels, for heads of any width; `from` is a block's row.
struct KeyEnds {
  const std::uint16_t* at[2];  // for even units and for odd units

  __device__ __forceinline__ KeyEnds(const std::uint16_t* from, int dims, unsigned lane) {
    const bool wide = kv_wide(dims);
    at[0] = from + lane % 4 * (wide ? 8 : 4);
    at[1] = at[0] - (wide ? 12 : 0);
  }
  // `further` is the offset (in numbers) of the row to read.
  __device__ __forceinline__ UnitEnds of(int unit, int further) const {
    const uint2 both = *reinterpret_cast<const uint2*>(at[unit % 2] + 16 * unit + further);
    return {both.x, both.y};
  }
};

// Multiplies an operand of 16 rows by the scales along k.
__device__ __forceinline__ void fold_scales(const std::uint32_t (&a)[4], const UnitEnds& scales,
                                            std::uint32_t (&folded)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    folded[i] = ptx::f16x2_fma(a[i], i < 2 ? scales.near : scales.far, 0u);
  }
}

// The shape of a block: a TensorShape over f16 pages with one stage, and `stages` stages of codes.
template <int dims, int row_warps, int column_warps, int row_tiles, int stages, int blocks>
struct PackedShape : TensorShape<KvType::f16, dims, row_warps, column_warps, row_tiles, 1, blocks> {
  static constexpr int kCodeStages = stages;
  // The product of a weight and a scale fits into f16 whatever the values are, since a scale is at
  // most 2 * 65504 / 15.
  static constexpr float kWeightBits = 2.0f;
  static constexpr int kGroup = kv_scheme(KvType::simq4).group;  // channels that share a scale
  static constexpr int kGroups = (dims + kGroup - 1) / kGroup;
  static constexpr int kShifts =
      PackedShape::kColumns <= kGroup ? 1 : PackedShape::kColumns / kGroup;
  // The number of units of 16 columns that share a shift within a warp.
  static constexpr int kShiftUnits = PackedShape::kColumns / 16 / kShifts;
};

// The positions that the rows of a block read as codes, and those that they read in f16.
struct PackedVisible {
  Positions seen;
  CodedPositions first_row, last_row;

  __device__ __forceinline__ PackedVisible(const QueryBlock& block, const KvResidual& residual,
                                           Positions seen_)
      : seen(seen_),
        first_row(residual, block.position),
        last_row(residual, block.position + block.rows - 1) {}

  // The positions that some row reads as codes.
  __device__ __forceinline__ Positions coded() const {
    return {max(seen.first, last_row.first), min(seen.last, last_row.last)};
  }
  // The positions that some row reads in f16: sinks, and blocks that are not closed.
  __device__ __forceinline__ Positions sinks() const {
    return {seen.first, min(seen.last, first_row.first)};
  }
  __device__ __forceinline__ Positions open() const {
    return {max(seen.first, first_row.last), seen.last};
  }
  __device__ __forceinline__ bool copied(int j) const {
    return seen.holds(j) && !(first_row.holds(j) && last_row.holds(j));
  }
};

template <class Shape>
struct PackedMemory {
  using Wide = TileMemory<Shape>;
  static constexpr int kCodes = kTile * Shape::kDims / 2;  // of keys or of values
  static constexpr int kStageBytes = 2 * kCodes;
  // The number of scales and minima; a tile has at most two blocks of keys.
  static constexpr int kKeyEnds = 2 * Shape::kDims;
  static constexpr int kValueEnds = Shape::kGroups * kTile;
  static constexpr int kValueEndsAt = 2 * kKeyEnds * 2;
  static constexpr int kEndBytes = kValueEndsAt + 2 * kValueEnds * 2;
  static constexpr int kEndStages = Shape::kCodeStages > 1 ? Shape::kCodeStages : 2;

  static constexpr int kCodesAt = (Wide::kBytes + 15) / 16 * 16;
  static constexpr int kEndsAt = kCodesAt + Shape::kCodeStages * kStageBytes;
  static constexpr int kVisibleAt = kEndsAt + kEndStages * kEndBytes;
  static constexpr int kBytes = kVisibleAt + static_cast<int>(sizeof(PackedVisible));
};

// Loads tiles of codes in order, and f16 copies on request. In generation, tiles of heads as wide
// as the shape are copied with one address per thread and constant offsets.
template <class Shape>
class PackedLoader {
  using Memory = PackedMemory<Shape>;
  using Wide = TileMemory<Shape>;
  using Rows = typename Wide::Rows;

 public:
  __device__ __forceinline__ PackedLoader(const AttentionArguments& a, const QueryBlock& block,
                                          const PackedVisible& visible, unsigned char* memory)
      : a_(a),
        block_(block),
        visible_(visible),
        whole_(visible.coded()),
        memory_(memory),
        next_(visible.coded().first / kTile),
        end_(visible.coded().empty() ? next_ : (visible.coded().last + kTile - 1) / kTile),
        page_(next_ < end_ ? block.pages[next_] : 0) {
    if constexpr (Shape::kGeneration) place_whole_tiles();
  }

  // The codes, and the scales and minima, of the current tile.
  __device__ __forceinline__ const unsigned char* codes() const {
    return memory_ + Memory::kCodesAt + code_stage(used_) * Memory::kStageBytes;
  }
  __device__ __forceinline__ unsigned char* ends() const {
    return memory_ + Memory::kEndsAt + used_ * Memory::kEndBytes;
  }
  // Releases the current tile's stage.
  __device__ __forceinline__ void leave() { used_ = after(used_); }

  // Starts copying the next tile of codes, if there is one; always commits one group of copies.
  __device__ __forceinline__ void load_next() {
    if (next_ < end_) {
      unsigned char* const to =
          memory_ + Memory::kCodesAt + code_stage(filled_) * Memory::kStageBytes;
      unsigned char* const to_ends = memory_ + Memory::kEndsAt + filled_ * Memory::kEndBytes;
      if (Shape::kGeneration && a_.heads.head_dim == Shape::kDims) {
        copy_whole(to, to_ends);
      } else {
        load_side(a_.keys, to, to_ends, Memory::kKeyEnds);
        load_side(a_.values, to + Memory::kCodes, to_ends + Memory::kValueEndsAt,
                  Memory::kValueEnds);
      }
      filled_ = after(filled_);
      ++next_;
      if (next_ < end_) page_ = block_.pages[next_];
    }
    ptx::cp_async_commit();
  }

  // Starts copying the f16 copies of a tile to the stage, as one group of copies. Rows that no
  // query reads in f16 become 0.
  __device__ __forceinline__ void load_copies(int tile) const {
    const int run = a_.batch.row_runs[block_.row];
    const int copy = a_.batch.pages[a_.batch.runs[run].copies_at + tile];
    load_rows(a_.copied.keys, copy, tile, memory_);
    load_rows(a_.copied.values, copy, tile, memory_ + Wide::kValuesAt);
    ptx::cp_async_commit();
  }

  // Clears scales of values that are not read by any query: their memory is undefined, and 0 times
  // an undefined number may not be 0. Ends with a barrier if the tile has such values.
  __device__ __forceinline__ void clear_unseen_ends(int tile) const {
    if (whole_.holds(tile)) return;
    const Positions coded = visible_.coded();
    auto* const of_values = reinterpret_cast<std::uint16_t*>(ends() + Memory::kValueEndsAt);
    for (int i = static_cast<int>(threadIdx.x); i < 2 * Memory::kValueEnds; i += Shape::kThreads) {
      const int slot = i % kTile;
      if (!coded.holds(tile * kTile + slot)) of_values[i - slot + kv_value_end(slot)] = 0;
    }
    __syncthreads();
  }

 private:
  static __device__ __forceinline__ int after(int stage) {
    return stage + 1 < Memory::kEndStages ? stage + 1 : 0;
  }
  static __device__ __forceinline__ int code_stage(int stage) {
    return Shape::kCodeStages > 1 ? stage : 0;
  }

  // Loads codes, scales and minima of keys or values; `capacity`: numbers reserved for scales.
  __device__ __forceinline__ void load_side(const KvPages& pages, unsigned char* to,
                                            unsigned char* to_ends, int capacity) const {
    const PackedHead head = packed_head(pages, page_, a_.heads, block_.kv_head);
    const int thread = static_cast<int>(threadIdx.x);
    const auto* const words = reinterpret_cast<const unsigned char*>(head.words);
    const int bytes = kTile * a_.heads.head_dim / 2;
    for (int at = thread * 16; at < bytes; at += Shape::kThreads * 16) {
      ptx::cp_async16(to + at, words + at, true);
    }
    const int count = pages.codes.ends / 8;  // copies of 16 bytes
    for (int i = thread; i < 2 * count; i += Shape::kThreads) {
      const bool scale = i < count;
      const int at = scale ? i : i - count;
      ptx::cp_async16(to_ends + (scale ? 0 : 2 * capacity) + at * 16,
                      (scale ? head.scales : head.minima) + at * 8, true);
    }
  }

  // Computes the base addresses, as for page 0, of this thread's part of a tile as wide as the
  // shape: its codes, and 16 bytes of scales or minima of keys or values.
  __device__ __forceinline__ void place_whole_tiles() {
    const int thread = static_cast<int>(threadIdx.x), head = block_.kv_head;
    keys_ = a_.keys.base + head * Memory::kCodes + thread * 16;
    values_ = a_.values.base + head * Memory::kCodes + thread * 16;
    const int of_keys = a_.keys.codes.ends / 8, of_values = a_.values.codes.ends / 8;
    const bool keys = thread < 2 * of_keys;
    const int i = keys ? thread : thread - 2 * of_keys, count = keys ? of_keys : of_values;
    if (i >= 2 * count) return;
    const KvPages& pages = keys ? a_.keys : a_.values;
    const int minima = i < count ? 0 : 1, chunk = i - minima * count;
    const std::int64_t heads = a_.heads.kv_heads;
    ends_ =
        pages.base + heads * Memory::kCodes + (minima * heads + head) * (16 * count) + chunk * 16;
    ends_stride_ = static_cast<unsigned>(pages.page_bytes);
    ends_to_ = (keys ? 0 : Memory::kValueEndsAt) + chunk * 16 +
               minima * 2 * (keys ? Memory::kKeyEnds : Memory::kValueEnds);
  }
  __device__ __forceinline__ void copy_whole(unsigned char* to, unsigned char* to_ends) const {
    static_assert(!Shape::kGeneration ||
                  2 * (Memory::kKeyEnds + Memory::kValueEnds) / 8 <= Shape::kThreads);
    // 32 bits suffice because a page of one layer has less than 2^31 bytes.
    const std::uint64_t page = static_cast<unsigned>(page_);
    copy_codes(to, keys_ + page * static_cast<unsigned>(a_.keys.page_bytes));
    copy_codes(to + Memory::kCodes, values_ + page * static_cast<unsigned>(a_.values.page_bytes));
    if (ends_ != nullptr) ptx::cp_async16(to_ends + ends_to_, ends_ + page * ends_stride_, true);
  }
  __device__ __forceinline__ void copy_codes(unsigned char* to, const std::byte* from) const {
    constexpr int kChunks = Memory::kCodes / 16;
    const int thread = static_cast<int>(threadIdx.x);
    if (kChunks < Shape::kThreads && thread >= kChunks) return;
#pragma unroll
    for (int i = 0; i < kChunks; i += Shape::kThreads) {
      ptx::cp_async16(to + (thread + i) * 16, from + i * 16, true);
    }
  }

  __device__ __forceinline__ void load_rows(const KvPages& copies, int copy, int tile,
                                            unsigned char* to) const {
    const KvHeadPage page = kv_head_page(copies, max(copy, 0), a_.heads, block_.kv_head);
    const int thread = ptx::opaque(threadIdx.x), row_bytes = static_cast<int>(page.row_bytes);
#pragma unroll 2
    for (int i = thread; i < kTile * Rows::kChunks; i += Shape::kThreads) {
      const int row = i / Rows::kChunks, chunk = i % Rows::kChunks;
      const bool valid = copy >= 0 && chunk * 16 < row_bytes && visible_.copied(tile * kTile + row);
      ptx::cp_async16(to + Rows::at(row, chunk),
                      page.numbers + (valid ? row * row_bytes + chunk * 16 : 0), valid);
    }
  }

  const AttentionArguments& a_;
  const QueryBlock& block_;
  const PackedVisible& visible_;
  WholeTiles whole_;  // tiles that are all read as codes
  unsigned char* memory_;
  int next_, end_, page_;      // range of the tiles of codes still to load, and the next one's page
  int filled_ = 0, used_ = 0;  // stages of ends; also of codes if there are as many
  const std::byte *keys_ = nullptr, *values_ = nullptr, *ends_ = nullptr;
  unsigned ends_stride_ = 0;
  int ends_to_ = 0;
};

inline constexpr int kUnitBytes = 512;  // operands of a unit

// Expands a tile's codes into operands in the stage. Each unit has four matrices in ldmatrix
// layout, one for each register. The units of keys are first.
template <class Shape>
__device__ __forceinline__ void expand_tile(const unsigned char* codes, int dims,
                                            unsigned char* memory) {
  using Memory = PackedMemory<Shape>;
  const auto* const keys = reinterpret_cast<const std::uint32_t*>(codes);
  const auto* const values = reinterpret_cast<const std::uint32_t*>(codes + Memory::kCodes);
  const int lane = static_cast<int>(threadIdx.x % 32), units = dims / 16;
  const auto put = [&](const UnitOperand& unit, unsigned char* to) {
    auto* const words = reinterpret_cast<std::uint32_t*>(to) + lane;
#pragma unroll
    for (int i = 0; i < 4; ++i) words[32 * i] = unit.b[i / 2][i % 2];
  };
#pragma unroll 1
  for (int s16 = 0; s16 < kTile / 16; ++s16) {
#pragma unroll 1
    for (int c16 = static_cast<int>(threadIdx.x / 32); c16 < units; c16 += Shape::kThreads / 32) {
      unsigned char* const to = memory + (s16 * units + c16) * kUnitBytes;
      put(unit_of_codes<KvPart::keys>(keys, dims, s16, c16, lane), to);
      put(unit_of_codes<KvPart::values>(values, dims, s16, c16, lane),
          to + kTile * Shape::kDims * 2);
    }
  }
}

// The source of a warp's operands of a tile: codes, or the operands expanded from them.
template <class Shape>
struct TileOperands {
  const unsigned char* memory;  // codes; in a prompt the stage with expanded operands
  int dims;
  unsigned lane;

  template <KvPart part>
  __device__ __forceinline__ const std::uint32_t* words() const {
    return reinterpret_cast<const std::uint32_t*>(
        memory + (part == KvPart::keys ? 0 : PackedMemory<Shape>::kCodes));
  }
  template <KvPart part>
  __device__ __forceinline__ UnitOperand unit(int s16, int c16) const {
    if constexpr (Shape::kGeneration) {
      return unit_of_codes<part>(words<part>(), dims, s16, c16, static_cast<int>(lane));
    } else {
      std::uint32_t r[4];
      ptx::ldmatrix_x4(r, memory + (part == KvPart::keys ? 0 : kTile * Shape::kDims * 2) +
                              (s16 * (dims / 16) + c16) * kUnitBytes + lane * 16);
      return {{{r[0], r[1]}, {r[2], r[3]}}};
    }
  }
};

// Loads consecutive words of a lane as vectors of four.
template <int count>
struct LaneWords {
  std::uint32_t words[count];

  __device__ __forceinline__ void load(const std::uint32_t* from, unsigned lane) {
#pragma unroll
    for (int i = 0; i < count / 4; ++i) {
      const uint4 four = reinterpret_cast<const uint4*>(from)[32 * i + lane];
      words[4 * i] = four.x;
      words[4 * i + 1] = four.y;
      words[4 * i + 2] = four.z;
      words[4 * i + 3] = four.w;
    }
  }
};

// Loads a lane's words of 16 keys, for a head as wide as the shape.
template <class Shape>
struct KeyWords {
  static constexpr int kCount = Shape::kDims / 16;
  LaneWords<kCount> lane_words;

  __device__ __forceinline__ void load(const TileOperands<Shape>& tile, int s16) {
    lane_words.load(tile.template words<KvPart::keys>() + s16 * (32 * kCount), tile.lane);
  }
  __device__ __forceinline__ UnitOperand unit(int step) const {
    return unit_of_word<KvPart::keys>(lane_words.words[step]);
  }
};

// Loads a lane's words of a tile's values in the columns of its warp.
template <class Shape>
struct ValueWords {
  LaneWords<Shape::kColumns / 4> lane_words;

  __device__ __forceinline__ void load(const TileOperands<Shape>& tile, int c16) {
    lane_words.load(tile.template words<KvPart::values>() + c16 * 128, tile.lane);
  }
  __device__ __forceinline__ UnitOperand unit(int step, int c) const {
    return unit_of_word<KvPart::values>(lane_words.words[4 * c + step]);
  }
};

}  // namespace leq::LEQ_GPU
