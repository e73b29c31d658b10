// Many tokens times a weight of 8, 4, 3 or 2 bits on compute capability 9.0 (wgmma): one warpgroup
// fetches tiles by the copy engine, two others multiply them; a block walks over tiles of the
// output. The sums and their order are those of int_gemm.cuh (docs/cuda-kernels.md).
#pragma once

#include "cuda/kernels/matmul/hopper_tiles.cuh"
#include "cuda/kernels/matmul/int_gemm.cuh"

namespace leq::LEQ_GPU {

// A tile of 128 rows x `tokens`. The rows are operand A of wgmma, 64 for each warpgroup.
// group: columns of one int32 sum, 128, or 0 for the row. zeros: codes may have zero points.
template <int bits, int group, int tokens, bool zeros>
struct HopperShape {
  static constexpr int kBits = bits, kGroup = group, kTokens = tokens, kRows = 128;
  // With groups the tokens are two parts: the tensor cores multiply one while the sums of the other
  // are scaled. Operand A then comes through registers, which are read once for both: from shared
  // memory, 64 rows for 64 tokens, operands take all that it delivers.
  static constexpr int kParts = group == 0 ? 1 : 2;
  // Signed bytes of one part as they lie in shared memory; other codes are unpacked on the way.
  static constexpr bool kThroughRegisters = zeros || group != 0;
  // Signed bytes have no zero points; those of uint8 leave the sums, by the sums of the tokens'
  // codes. Codes below 8 bits leave theirs while they are unpacked (slab_quad_less): a warp unpacks
  // 16 registers of a slab, and has 64 sums of it.
  static constexpr bool kMayHaveZeros = zeros;
  static constexpr bool kZerosInCodes = bits < 8, kZerosInSums = kMayHaveZeros && !kZerosInCodes;
  static constexpr int kSums = tokens / 2, kPartSums = kSums / kParts;  // of a thread
  static constexpr int kThreads = kHopperThreads;
  static constexpr int kScaleThreads = 64;  // of the fetching warpgroup
  static_assert(group == 0 || (group == kSlab && tokens == kRows));
  static_assert(bits == 8 || zeros);
};

// Scales over what codes are multiplied by. zero: of uint8 its negative, so that nothing is turned
// over for each sum; below 8 bits zero_less.
template <class Shape>
struct HopperGroups {
  float row_scale[Shape::kRows];
  float token_scale[Shape::kTokens];
  std::uint32_t zero[Shape::kRows];
  int token_sum[Shape::kZerosInSums ? Shape::kTokens : 4];
};

// A stage: a slab's tokens, then its codes.
template <class Shape>
struct HopperMemory
    : StageMemory<Shape::kTokens * kSlab + Shape::kRows * Shape::kBits * 16,
                  Shape::kGroup == 0 ? 0 : static_cast<int>(sizeof(HopperGroups<Shape>))> {
  using HopperMemory::StageMemory::StageMemory;
  using Groups = HopperGroups<Shape>;
  static constexpr int kRowBytes = Shape::kBits * 16;  // of codes in a slab
  static constexpr int kTokenBytes = Shape::kTokens * kSlab;

  __device__ __forceinline__ unsigned char* tokens(int stage) const { return this->stage(stage); }
  __device__ __forceinline__ unsigned char* codes(int stage) const {
    return tokens(stage) + kTokenBytes;
  }
  __device__ __forceinline__ Groups& groups(int stage) const {
    return *reinterpret_cast<Groups*>(this->group_bytes(stage));
  }
  __device__ __forceinline__ void init() const {
    this->init_barriers(1 + (Shape::kGroup == 0 ? 0 : Shape::kScaleThreads));
  }
};

// Where the scale of a token lies among those of a slab, and its sum: four of a thread lie
// together, those of eight tokens and of the next eight.
__device__ __forceinline__ int scale_place(int token) {
  return token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

__device__ __forceinline__ bool has_zeros(const IntMatmul& a) {
  return a.segments[0].weight.zeros != nullptr;
}
// What codes are multiplied by, as a power of two.
template <class Shape>
__device__ __forceinline__ int code_powers(const IntMatmul& a) {
  constexpr int kSigned = 8 - Shape::kBits, kLess = kZeroPowers<Shape::kBits>;
  return Shape::kZerosInCodes && has_zeros(a) ? kLess : kSigned;
}

// One thread: all tiles of the block, slab by slab.
template <class Shape>
__device__ __forceinline__ void load_tiles(const IntMatmul& a, const HopperMaps& maps,
                                           const HopperMemory<Shape>& memory, int slabs) {
  using Memory = HopperMemory<Shape>;
  Ring<Memory::kStages> ring;
  const TileWalk walk(maps);
  for (int tile = walk.first; tile < walk.end; tile += walk.step) {
    const GemmRows<Shape> rows = maps.rows<Shape>(a, tile);
    const int first_token = static_cast<int>(rows.first_token);
    for (int slab = 0; slab < slabs; ++slab, ring.next()) {
      ptx::Barrier& full = memory.full(ring.stage);
      ptx::barrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
      ptx::barrier_expect(full, Memory::kStageBytes);
      load_tokens<Shape>(maps.tokens, slab * kSlab, first_token, memory.tokens(ring.stage), full);
      load_rows(rows, maps.weights, slab * Memory::kRowBytes, Memory::kRowBytes,
                memory.codes(ring.stage), full);
    }
  }
}

// Scales, zero points and sums of a slab on their way to shared memory: a thread brings those of
// two rows and two tokens.
template <class Shape>
struct SlabScales {
  static constexpr int kEach = Shape::kRows / Shape::kScaleThreads;
  RowGroup row[kEach];
  float token_scale[kEach];
  int token_sum[kEach];

  __device__ __forceinline__ void load(const IntMatmul& a, const Grouping& grouping,
                                       const GemmRows<Shape>& rows, int slab, int thread) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread + i * Shape::kScaleThreads;
      const CodeSegment& segment = rows.of(a, at);
      const int n = rows.first + rows.offset(at);
      const std::int64_t token = rows.first_token + at;
      row[i] = {0.0f, 0};
      if (n < segment.rows) row[i] = row_group(segment.weight, grouping, n, slab * kSlab);
      token_scale[i] = 1.0f;
      token_sum[i] = 0;
      if (token >= a.tokens) continue;
      if (a.x.group > 0) token_scale[i] = a.x.scales[token * a.x.scale_stride + slab];
      if (Shape::kZerosInSums) token_sum[i] = a.x.sums[token * a.x.sum_stride + slab];
    }
  }
  // `factor`: one over that of the codes.
  __device__ __forceinline__ void store(typename HopperMemory<Shape>::Groups& to, float factor,
                                        int thread) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread + i * Shape::kScaleThreads;
      to.row_scale[at] = row[i].scale * factor;
      to.token_scale[scale_place(at)] = token_scale[i];
      if constexpr (Shape::kZerosInCodes) {
        to.zero[at] = zero_less<Shape::kBits>(row[i].zero);
      } else if constexpr (Shape::kZerosInSums) {
        to.zero[at] = static_cast<std::uint32_t>(-row[i].zero);
        to.token_sum[scale_place(at)] = token_sum[i];
      }
    }
  }
};

// The same slabs, by kScaleThreads threads.
template <class Shape>
__device__ __forceinline__ void load_scales(const IntMatmul& a, const HopperMaps& maps,
                                            const HopperMemory<Shape>& memory, int slabs,
                                            int thread) {
  Ring<HopperMemory<Shape>::kStages> ring;
  const Grouping grouping(a);
  const float factor = 1.0f / static_cast<float>(1 << code_powers<Shape>(a));
  const TileWalk walk(maps);
  for (int tile = walk.first; tile < walk.end; tile += walk.step) {
    const GemmRows<Shape> rows = maps.rows<Shape>(a, tile);
    SlabScales<Shape> next;
    next.load(a, grouping, rows, 0, thread);
    for (int slab = 0; slab < slabs; ++slab, ring.next()) {
      ptx::barrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
      next.store(memory.groups(ring.stage), factor, thread);
      ptx::barrier_arrive(memory.full(ring.stage));
      if (slab + 1 < slabs) next.load(a, grouping, rows, slab + 1, thread);
    }
  }
}

// The sums of one warpgroup: 64 rows x all tokens of the tile. Number i of a thread: row
// lane / 4 + 8 (i / 2 % 2) of its warp's 16, token 8 (i / 4) + 2 (lane % 4) + i % 2.
template <class Shape, class Sum>
struct WarpgroupTile {
  using Memory = HopperMemory<Shape>;
  static constexpr bool kGrouped = Shape::kGroup != 0;
  static constexpr int kPartSums = Shape::kPartSums;
  int sums[Shape::kParts][kPartSums];
  float totals[kGrouped ? Shape::kSums : 1];
  // Operand A, of 32 columns each: of one slab, with groups of two in turn.
  std::uint32_t codes[Shape::kParts][Shape::kThroughRegisters ? 4 : 1][4];
  // Where the lane's row of each two chunks of codes lies in a stage, as ldmatrix asks for it: the
  // warp's first eight rows and the next of one chunk, then of the other.
  static constexpr int kCodeLoads = Shape::kThroughRegisters ? (Shape::kBits + 1) / 2 : 1;
  int code_at[kCodeLoads];
  int lane, warp;              // warp: of all that multiply
  int first_row, first_token;  // of number 0

  // What is worked out here is not worked out again in each slab.
  __device__ __forceinline__ WarpgroupTile()
      : lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32) - 4),
        first_row(kept(warp * 16 + lane / 4)),
        first_token(kept(lane % 4 * 2)) {
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) sums[i / kPartSums][i % kPartSums] = kept(0);
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
    if constexpr (kGrouped) {
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) totals[i] = 0;
    }
  }

  // Codes of a slab from shared memory into the registers of operand A; `zeros`: less these.
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
        for (int i = 0; i < 8; ++i) {  // 16 columns each
          codes[set][i / 2][half + i % 2 * 2] = quad(words, i, half);
        }
      }
    };
    if constexpr (Shape::kZerosInCodes && kGrouped) {
      if (zeros) {
        const auto& of_row = memory.groups(stage).zero;
        const std::uint32_t less[2] = {of_row[row(0)], of_row[row(2)]};
        return unpack([&](const auto& words, int i, int half) {
          return slab_quad_less<kBits>(words, i, less[half]);
        });
      }
    }
    unpack([&](const auto& words, int i, int) { return slab_quad<kBits>(words, i, flip); });
  }

  // Starts multiplying a part of a slab; `add`: to the sums that are there.
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
        const unsigned char* const rows = memory.codes(stage) + warp / 4 * (64 * kSlab);
        const std::uint64_t mine = ptx::next_columns(ptx::matrix_operand(rows), step);
        ptx::wgmma(sums[part], mine, columns, add || step > 0);
      }
    }
    ptx::wgmma_commit();
  }

  // A group of a part is complete. Its sums, operands of wgmma, stay as they are.
  template <int part>
  __device__ __forceinline__ void flush(const IntMatmul& a, const GemmRows<Shape>& rows,
                                        const typename Memory::Groups& groups, int slab) {
    const CodeWeight& weight = a.segments[0].weight;
    if constexpr (Sum::kIntegers) {
      store_integers<part>(a, rows, groups, slab);
    } else {
      // Where one side alone has groups, the other's scale is 1.
      const float of_row[2] = {groups.row_scale[row(0)], groups.row_scale[row(2)]};
      if (a.x.group == 0) {
        add_scaled<part, false, true>(groups, of_row);
      } else if (weight.group == 0) {
        add_scaled<part, true, false>(groups, of_row);
      } else {
        add_scaled<part, true, true>(groups, of_row);
      }
    }
  }
  // Those of 16 tokens, less what the zero points of uint8 added: for these four sums of tokens,
  // which lie together.
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
  // And four of their scales.
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

  // Those of the group `at`.
  template <int part>
  __device__ __forceinline__ void store_integers(const IntMatmul& a, const GemmRows<Shape>& rows,
                                                 const typename Memory::Groups& groups,
                                                 std::int64_t at) const {
    const std::int64_t columns = output_columns(a), token = rows.first_token + first_token;
    const std::int64_t tokens = a.tokens - token;  // that are left
    const std::int64_t rows_left = rows.of(a, first_row).rows - rows.first - first_row;
    int* const to = a.integers + (at * a.tokens + token) * columns + rows.column + first_row;
    const int powers = code_powers<Shape>(a);
#pragma unroll
    for (int first = 0; first < kPartSums; first += 8) {
      int eight[8];
      eight_sums<part>(groups, first, eight);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int t = (part * kPartSums + first + i) / 4 * 8 + i % 2, n = i / 2 % 2 * 8;
        if (t < tokens && n < rows_left) to[t * columns + n] = eight[i] >> powers;
      }
    }
  }
  __device__ __forceinline__ void store_integer(const IntMatmul& a, const GemmRows<Shape>& rows,
                                                std::int64_t at, int n, int t, int sum) const {
    const std::int64_t token = rows.first_token + t;
    if (token >= a.tokens || rows.first + n >= rows.of(a, n).rows) return;
    a.integers[(at * a.tokens + token) * output_columns(a) + rows.column + n] = sum;
  }

  // The tile's sums, 32 tokens at a time, through shared memory so that neighbouring lanes write
  // neighbouring columns.
  __device__ __forceinline__ void finish_all(const IntMatmul& a, const GemmRows<Shape>& rows,
                                             int* out) const {
#pragma unroll
    for (int first = 0; first < Shape::kTokens; first += Memory::kOutTokens) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < Memory::kOutTokens / 2; ++i) {
        const int from = first / 2 + i;
        const int bits = kGrouped ? __float_as_int(totals[kGrouped ? from : 0])
                                  : sums[from / kPartSums][from % kPartSums];
        out[token(i) * Memory::kOutStride + lane / 4 + i / 2 % 2 * 8] = bits;
      }
      __syncwarp();
      finish_some(a, rows, first, out);
    }
  }

  __device__ __forceinline__ void finish_some(const IntMatmul& a, const GemmRows<Shape>& rows,
                                              int first, const int* out) const {
    const int width = rows.paired ? 8 : Memory::kOutRows;  // 32 is a multiple: a lane keeps its row
    const int column = lane % width;
    const int tile_row = warp * 16 + column, n = rows.first + rows.offset(tile_row);
    const CodeSegment& segment = rows.of(a, tile_row);
    if (n >= segment.rows) return;
    const CodeSegment& other = rows.paired ? a.segments[1] : segment;
    const RowFinish row_finish(segment, n), up_finish(other, n);
    const int step = 32 / width;
    const std::int64_t to = rows.column + rows.offset(tile_row);
    // Four tokens at a time: reads first, then writes.
    constexpr int kTogether = 4;
#pragma unroll 1
    for (int t = lane / width; t < Memory::kOutTokens; t += kTogether * step) {
      float scale[kTogether], before[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t token = min(rows.first_token + first + t + i * step, a.tokens - 1);
        scale[i] = row_scale_of(a, token);
        before[i] = a.finish == Finish::add ? a.out.values[token * a.out.stride + to] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t token = rows.first_token + first + t + i * step;
        if (token >= a.tokens) break;
        const int* const at = out + (t + i * step) * Memory::kOutStride + column;
        if constexpr (Sum::kIntegers) {
          if (kGrouped) continue;
          store_integer(a, rows, 0, tile_row, first + t + i * step,
                        whole(a, segment, n, token, at[0]));
          continue;
        }
        const float y = row_finish.value(scale[i], number(a, segment, n, token, at[0]));
        float up = 0;
        if (rows.paired) up = up_finish.value(scale[i], number(a, other, n, token, at[8]));
        a.out.values[token * a.out.stride + to] = finished(a.finish, y, up, before[i]);
      }
    }
  }
  // What the columns added up to, from the bits of a total or a sum over the whole row.
  __device__ __forceinline__ float number(const IntMatmul& a, const CodeSegment& segment, int n,
                                          std::int64_t token, int bits) const {
    if constexpr (kGrouped) return __int_as_float(bits);
    return static_cast<float>(whole(a, segment, n, token, bits));
  }
  __device__ __forceinline__ int whole(const IntMatmul& a, const CodeSegment& segment, int n,
                                       std::int64_t token, int sum) const {
    if constexpr (Shape::kMayHaveZeros) {
      sum -= (segment.weight.zeros[n] - 128) * a.x.sums[token * a.x.sum_stride];
    }
    return sum;
  }
};

// What a warpgroup multiplies the slabs of its tiles with: one sum for a whole row.
template <class Shape, class Sum>
struct RowSlabs {
  const IntMatmul& a;
  const HopperMemory<Shape>& memory;
  WarpgroupTile<Shape, Sum>& tile;
  std::uint32_t flip;
  Ring<HopperMemory<Shape>::kStages> ring;

  __device__ __forceinline__ RowSlabs(const IntMatmul& arguments, const HopperMemory<Shape>& stages,
                                      WarpgroupTile<Shape, Sum>& of)
      : a(arguments), memory(stages), tile(of), flip(signed_flip<Shape::kBits>(arguments)) {}

  __device__ __forceinline__ void multiply(const GemmRows<Shape>&, int slabs) {
    int last = 0;  // stage that is being multiplied
    for (int slab = 0; slab < slabs; ++slab, ring.next()) {
      ptx::barrier_wait(memory.full(ring.stage), ring.parity);
      if constexpr (Shape::kThroughRegisters) {
        tile.template load_codes<0>(memory, ring.stage, flip, false);
      }
      tile.template multiply<0, 0>(memory, ring.stage, slab > 0);
      if constexpr (Shape::kThroughRegisters) {
        ptx::wgmma_finish(tile.sums[0]);
        memory.release(ring.stage);
      } else {
        ptx::wgmma_wait<1>();
        if (slab > 0) memory.release(last);
        last = ring.stage;
      }
    }
    if constexpr (!Shape::kThroughRegisters) {
      ptx::wgmma_finish(tile.sums[0]);
      memory.release(last);
    }
  }
};

// The same with groups: sums of each slab, which are scaled while the tensor cores multiply what
// comes next: part 1 of a slab during part 0 of the next, and part 0 during part 1. Two slabs are
// multiplied like this, then all is waited for: ptxas gives up where sums that are read are under
// way from one round of a loop to the next (C7514).
template <class Shape, class Sum>
struct GroupSlabs {
  const IntMatmul& a;
  const HopperMemory<Shape>& memory;
  WarpgroupTile<Shape, Sum>& tile;
  std::uint32_t flip;
  bool zeros;
  Ring<HopperMemory<Shape>::kStages> ring;
  int last = 0;  // stage of the slab before

  __device__ __forceinline__ GroupSlabs(const IntMatmul& arguments,
                                        const HopperMemory<Shape>& stages,
                                        WarpgroupTile<Shape, Sum>& of)
      : a(arguments),
        memory(stages),
        tile(of),
        flip(Shape::kMayHaveZeros ? signed_flip<Shape::kBits>(arguments) : 0),
        zeros(has_zeros(arguments)) {}

  __device__ __forceinline__ void multiply(const GemmRows<Shape>& rows, int slabs) {
    int slab = slabs % 2;
    if (slab == 1) {
      step<0, true>(rows, 0);
      end<0>(rows, 0);
    }
    for (; slab < slabs; slab += 2) {
      step<0, true>(rows, slab);
      step<1, false>(rows, slab + 1);
      end<0>(rows, slab + 1);
    }
  }
  // `set`: registers of operand A that part 1 of the slab before does not read.
  template <int set, bool first>
  __device__ __forceinline__ void step(const GemmRows<Shape>& rows, int slab) {
    ptx::barrier_wait(memory.full(ring.stage), ring.parity);
    tile.template load_codes<set>(memory, ring.stage, flip, zeros);
    tile.template multiply<0, set>(memory, ring.stage, false);
    if constexpr (!first) end<1>(rows, slab - 1);
    tile.template multiply<1, set>(memory, ring.stage, false);
    ptx::wgmma_finish<1>(tile.sums[0]);
    tile.template flush<0>(a, rows, memory.groups(ring.stage), slab);
    last = ring.stage;
    ring.next();
  }
  // Part 1 of the slab before, when `left` multiplications have started after it.
  template <int left>
  __device__ __forceinline__ void end(const GemmRows<Shape>& rows, int slab) {
    ptx::wgmma_finish<left>(tile.sums[1]);
    tile.template flush<1>(a, rows, memory.groups(last), slab);
    memory.release(last);
  }
};

// Two warpgroups: multiplies the slabs of all tiles of the block.
template <class Shape, class Sum>
__device__ __forceinline__ void multiply_tiles(const IntMatmul& a, const HopperMaps& maps,
                                               const HopperMemory<Shape>& memory, int slabs) {
  using Slabs =
      std::conditional_t<Shape::kGroup == 0, RowSlabs<Shape, Sum>, GroupSlabs<Shape, Sum>>;
  WarpgroupTile<Shape, Sum> tile;
  Slabs all(a, memory, tile);
  const TileWalk walk(maps);
  for (int i = walk.first; i < walk.end; i += walk.step) {
    const GemmRows<Shape> rows = maps.rows<Shape>(a, i);
    tile.start();
    all.multiply(rows, slabs);
    tile.finish_all(a, rows, memory.out(tile.warp));
  }
}

template <class Shape, class Sum>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    int_gemm_wgmma(const LEQ_GRID_CONSTANT IntMatmul a, const LEQ_GRID_CONSTANT HopperMaps maps) {
  LEQ_BOUNDS(Shape::kThreads);
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    const HopperMemory<Shape> memory(dynamic);
    if (threadIdx.x == 0) memory.init();
    ptx::sync_cluster();
    const int slabs = static_cast<int>(padded_columns(a.columns) / kSlab);
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < 4) {
      ptx::keep_registers<56>();
      if (threadIdx.x == 0) load_tiles(a, maps, memory, slabs);
      if (Shape::kGroup != 0 && warp >= 2) {
        load_scales(a, maps, memory, slabs, static_cast<int>(threadIdx.x) - 64);
      }
    } else {
      ptx::take_registers<224>();
      multiply_tiles<Shape, Sum>(a, maps, memory, slabs);
    }
    // Other blocks reach this one's memory until they are through.
    ptx::sync_cluster();
  } else {
    ptx::wrong_architecture();
  }
}

}  // namespace leq::LEQ_GPU
