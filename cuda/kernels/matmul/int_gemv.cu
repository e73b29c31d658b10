// The kernels for few tokens, selected by bits, tokens and grouping, and int_gemv_tokens: two to
// sixteen tokens times a weight whose sums are over groups of 128 columns, on the tensor cores
// (mma.m16n8k32). The 16 rows of a block are one operand, a side of eight tokens the other. The
// columns of a sum may have any order that both operands share, so a lane loads columns whose codes
// are contiguous directly into operands. Lanes exchange nothing; queued sums are added as in
// int_gemv_groups.cuh, bit-identical to every other kernel.
#include <algorithm>

#include "cuda/intrinsics/arrays.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_gemv.cuh"
#include "cuda/kernels/matmul/int_gemv_groups.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {

inline constexpr int kSideTokens = 8;   // tokens of an mma
inline constexpr int kTokenRound = 32;  // capacity of the queue, in groups of one side

// Queued sums of a row and two tokens; the queue is [groups of a round][sides][16 rows][4].
struct alignas(16) WaitingPair {
  WaitingSum of[2];
};

// A lane's part of a group: eight words of four columns of both operands, in the same order.
//   8 bits: 16 columns of chunk t = lane % 4 and of chunk t + 4;  4 bits: 32 columns of chunk t
//   2 bits: two words of each run of chunk t / 2, in the half of the run that t % 2 selects
//   3 bits: word t of each run
template <int bits>
struct LaneColumns {
  static constexpr int kWords = bits;  // words of a row
  static constexpr int kGroupBytes = kGroupColumns * bits / 8;
  static constexpr int kQuads = 8;

  static __device__ __forceinline__ int part() { return static_cast<int>(threadIdx.x % 4); }
  static __device__ __forceinline__ int byte() {
    return part() * (bits == 3 ? 4 : bits == 2 ? 8 : 16);
  }
  static __device__ __forceinline__ int column() {
    if constexpr (bits == 3) return part() * 4;
    if constexpr (bits >= 4) return part() * Packing<bits>::kColumns;
    return part() / 2 * Packing<bits>::kColumns + part() % 2 * 8;
  }

  template <int count>
  static __device__ __forceinline__ void put(const uint4& words, std::uint32_t (&to)[count],
                                             int first) {
    put(uint2{words.x, words.y}, to, first);
    put(uint2{words.z, words.w}, to, first + 2);
  }
  template <int count>
  static __device__ __forceinline__ void put(const uint2& words, std::uint32_t (&to)[count],
                                             int first) {
    to[first] = words.x;
    to[first + 1] = words.y;
  }
  template <class Words>
  static __device__ __forceinline__ const Words& words_at(const void* from) {
    return *static_cast<const Words*>(from);
  }
  // Loads codes of a row; `from` is at offset byte() in the row's group.
  static __device__ __forceinline__ void load_codes(const std::uint8_t* from,
                                                    std::uint32_t (&to)[kWords]) {
    if constexpr (bits == 3) {
#pragma unroll
      for (int chunk = 0; chunk < 3; ++chunk) {
        to[chunk] = words_at<std::uint32_t>(from + chunk * 16);
      }
    } else if constexpr (bits == 2) {
      put(words_at<uint2>(from), to, 0);
    } else {
      put(ptx::load_once(from), to, 0);
      if constexpr (bits == 8) put(ptx::load_once(from + 64), to, 4);
    }
  }
  // Loads inputs of a token; `from` is at offset column() in the token's group.
  static __device__ __forceinline__ void load_inputs(const std::int8_t* from,
                                                     std::uint32_t (&to)[kQuads]) {
    if constexpr (bits == 3) {
#pragma unroll
      for (int run = 0; run < kQuads; ++run) to[run] = words_at<std::uint32_t>(from + run * 16);
    } else if constexpr (bits == 2) {
#pragma unroll
      for (int run = 0; run < 4; ++run) put(words_at<uint2>(from + run * 16), to, run * 2);
    } else {
      put(words_at<uint4>(from), to, 0);
      put(words_at<uint4>(from + (bits == 8 ? 64 : 16)), to, 4);
    }
  }
  // Four codes as signed bytes (packed_codes.cuh) that match word `quad` of the inputs.
  static __device__ __forceinline__ std::uint32_t operand(const std::uint32_t (&words)[kWords],
                                                          int quad, std::uint32_t flip) {
    if constexpr (bits == 3) {
      return signed_quad<3>(words, quad, flip);
    } else {
      return signed_quad<bits>({words[quad % bits]}, quad / bits, flip);
    }
  }
};

template <int bits, bool zeros, int sides>
struct TokenStep {
  using Columns = LaneColumns<bits>;
  int group;
  std::uint32_t words[2][Columns::kWords];       // rows lane / 4 and lane / 4 + 8
  std::uint32_t inputs[sides][Columns::kQuads];  // token lane / 4 of each side
  std::uint16_t scales[2];
  float token_scales[sides][2];  // tokens 2 (lane % 4) and the next
  int zero_points[zeros ? 2 : 1], token_sums[zeros ? sides : 1][2];
};

// One lane's loop over the groups of its warp.
template <int bits, bool zeros, int sides>
struct TokenLoop {
  using Columns = LaneColumns<bits>;
  using Step = TokenStep<bits, zeros, sides>;
  // Codes are multiplied as signed bytes that are scaled by kFactor.
  static constexpr int kFactor = kSignedFactor<bits>, kMiddle = 1 << (bits - 1);

  const IntMatmul& a;
  const BlockRows& rows;
  int groups;  // groups of a row
  std::uint32_t flip;
  const std::uint8_t* codes[2];
  const std::int8_t* inputs[sides];
  const std::uint16_t* scales[2];
  const std::uint8_t* zero_points[2];
  const float* token_scales[sides][2];
  const std::int32_t* token_sums[sides];
  int next_sums[sides];  // distance of the next token's sums
  float scale_mul[2];

  __device__ __forceinline__ bool has_scales() const {
    return bits < 8 || a.segments[0].weight.group > 0;
  }
  static __device__ __forceinline__ int side() { return static_cast<int>(threadIdx.x % 32) / 4; }
  static __device__ __forceinline__ int row(int half) { return side() + 8 * half; }
  static __device__ __forceinline__ int token(int s, int i) {
    return s * kSideTokens + static_cast<int>(threadIdx.x % 4) * 2 + i;
  }

  __device__ __forceinline__ TokenLoop(const IntMatmul& arguments, const BlockRows& of_block)
      : a(arguments),
        rows(of_block),
        groups(static_cast<int>(round_up_to(arguments.columns, kGroupColumns)) / kGroupColumns),
        flip(bits == 8 ? (zeros ? kTopBits : 0u) : signed_flip<bits>(arguments)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const CodeWeight& weight = rows.of(a, row(half)).weight;
      const std::int64_t of_row = rows.row(row(half)), at = of_row * groups;
      codes[half] = ptx::opaque(weight.codes + at * Columns::kGroupBytes + Columns::byte());
      scales[half] = ptx::opaque(weight.group_scales + at);
      scale_mul[half] = (has_scales() ? weight.scale_mul : 1.0f) * (1.0f / kFactor);
      if constexpr (zeros) {
        zero_points[half] = ptx::opaque(weight.zeros + (has_scales() ? at : of_row));
      }
    }
#pragma unroll
    for (int s = 0; s < sides; ++s) {
      const std::int64_t token_of_lane = token_at(s * kSideTokens + side());
      inputs[s] = ptx::opaque(a.x.codes + token_of_lane * a.x.code_stride + Columns::column());
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        token_scales[s][i] = ptx::opaque(a.x.scales + token_at(token(s, i)) * a.x.scale_stride);
      }
      if constexpr (zeros) {
        token_sums[s] = ptx::opaque(a.x.sums + token_at(token(s, 0)) * a.x.sum_stride);
        next_sums[s] = token(s, 1) < a.tokens ? static_cast<int>(a.x.sum_stride) : 0;
      }
    }
  }
  __device__ __forceinline__ std::int64_t token_at(int t) const {
    return min(std::int64_t{t}, a.tokens - 1);
  }

  // Loads the weights of a group; past the end it loads the last group again, which is not counted.
  // May precede the wait for the preceding kernel, because no kernel writes weights.
  __device__ __forceinline__ void load_weights(int group, Step& step) const {
    step.group = min(group, groups - 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Columns::load_codes(ptx::moved<Columns::kGroupBytes>(codes[half], step.group),
                          step.words[half]);
    }
    step.scales[0] = step.scales[1] = 0x3c00;  // 1
    if (has_scales()) {
      step.scales[0] = *ptx::moved(scales[0], step.group);
      step.scales[1] = *ptx::moved(scales[1], step.group);
    }
    if constexpr (zeros) {
      step.zero_points[0] = *ptx::moved(zero_points[0], has_scales() ? step.group : 0);
      step.zero_points[1] = *ptx::moved(zero_points[1], has_scales() ? step.group : 0);
    }
  }
  __device__ __forceinline__ void load_tokens(Step& step) const {
#pragma unroll
    for (int s = 0; s < sides; ++s) {
      Columns::load_inputs(ptx::moved<kGroupColumns>(inputs[s], step.group), step.inputs[s]);
      step.token_scales[s][0] = step.token_scales[s][1] = 1.0f;
      if (a.x.group > 0) {
        step.token_scales[s][0] = *ptx::moved(token_scales[s][0], step.group);
        step.token_scales[s][1] = *ptx::moved(token_scales[s][1], step.group);
      }
      if constexpr (zeros) {
        step.token_sums[s][0] = *ptx::moved(token_sums[s], step.group);
        step.token_sums[s][1] = *ptx::moved(token_sums[s], next_sums[s] + step.group);
      }
    }
  }

  // sums[s][i] is the sum of row(i / 2) and token(s, i % 2), times kFactor.
  __device__ __forceinline__ void multiply(const Step& step, int (&sums)[sides][4]) const {
    fill(sums, 0);
#pragma unroll
    for (int quad = 0; quad < Columns::kQuads; quad += 2) {
      std::uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = Columns::operand(step.words[i % 2], quad + i / 2, flip);
      }
#pragma unroll
      for (int s = 0; s < sides; ++s) {
        const std::uint32_t x[2] = {step.inputs[s][quad], step.inputs[s][quad + 1]};
        ptx::mma_m16n8k32_s8(sums[s], w, x);
      }
    }
  }

  // Stores the lane's sums, less what zero points contribute, and their scales to the queue, whose
  // first entry is group `first`.
  __device__ __forceinline__ void keep(const Step& step, int first, WaitingPair* waiting,
                                       int (&sums)[sides][4]) const {
#pragma unroll
    for (int s = 0; s < sides; ++s) {
      if constexpr (zeros) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[s][i] -= (step.zero_points[i / 2] - kMiddle) * kFactor * step.token_sums[s][i % 2];
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = ptx::f16_to_f32(step.scales[half]) * scale_mul[half];
        waiting[(((step.group - first) * sides + s) * 2 + half) * 32] = {
            {{static_cast<float>(sums[s][2 * half]), scale * step.token_scales[s][0]},
             {static_cast<float>(sums[s][2 * half + 1]), scale * step.token_scales[s][1]}}};
      }
    }
  }
};

// The output of each of the first 128 threads per side. A warp has rows r, r + 1, r + 8 and r + 9
// of a side's tokens, so that gate and up are 16 lanes apart and reading the queue has no bank
// conflicts.
template <int sides>
struct TokenOutput {
  static constexpr int kSideThreads = kGroupRows * kSideTokens;
  int row, side, token;

  __device__ __forceinline__ TokenOutput() {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    side = static_cast<int>(threadIdx.x) / kSideThreads;
    row = lane / 16 * 8 + warp % 4 * 2 + lane % 16 / 8;
    token = side * kSideTokens + lane % 8;
  }
  __device__ __forceinline__ bool exists() const { return threadIdx.x < sides * kSideThreads; }
  __device__ __forceinline__ float add(const WaitingPair* waiting, int count, float f) const {
    if (!exists()) return f;
    const WaitingPair* const first = waiting + (side * kGroupRows + row) * 4 + token % 8 / 2;
#pragma unroll 4
    for (int slot = 0; slot < count; ++slot) {
      const WaitingSum next = first[slot * sides * kGroupRows * 4].of[token % 2];
      f = fmaf(next.sum, next.scale, f);
    }
    return f;
  }
  __device__ __forceinline__ void finish_group(const IntMatmul& a, const BlockRows& rows,
                                               float f) const {
    const int n = rows.row(row);
    const CodeSegment& segment = rows.of(a, row);
    const bool is_there = exists() && token < a.tokens && n < segment.rows;
    const float y = is_there ? finished_sum(a, segment, n, token, f) : 0.0f;
    const float up = __shfl_xor_sync(kEveryLane, y, 16);
    if (!is_there || (rows.paired && row >= kGroupRows / 2)) return;
    finish(a.finish, a.out, token, rows.column + row, y, up);
  }
};

// Two blocks of a multiprocessor would spill for unsigned codes of 3 bits and two sides.
template <int bits, bool zeros, int sides>
inline constexpr int kTokensBlocks = bits == 3 && zeros&& sides == 2 ? 1 : 2;

// For 1 < a.tokens <= 8 * sides, with groups of 128 columns of the weights, the tokens, or both.
template <int bits, bool zeros, int sides>
__global__ void __launch_bounds__(kGroupWarps * 32, (kTokensBlocks<bits, zeros, sides>))
    int_gemv_tokens(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(kGroupWarps * 32);
  LEQ_DYNAMIC_SHARED(WaitingPair, waiting);
  constexpr int kRound = kTokenRound / sides;
  const BlockRows rows(a);
  const TokenLoop<bits, zeros, sides> loop(a, rows);
  TokenStep<bits, zeros, sides> next;
  int group = static_cast<int>(threadIdx.x / 32);
  loop.load_weights(group, next);
  ptx::wait_for_predecessor();
  loop.load_tokens(next);
  const TokenOutput<sides> output;
  [[maybe_unused]] constexpr int kUnrolled = sides == 1 ? 2 : 1;  // two sides would spill
  WaitingPair* const mine = waiting + threadIdx.x % 32;           // the lane's entry for group 0
  float f = 0;
  for (int first = 0; first < loop.groups; first += kRound) {
    const int last = min(first + kRound, loop.groups);
    if (first > 0) __syncthreads();
#pragma unroll kUnrolled
    for (; group < last; group += kGroupWarps) {
      const TokenStep<bits, zeros, sides> step = next;
      loop.load_weights(group + kGroupWarps, next);
      loop.load_tokens(next);
      int sums[sides][4];
      loop.multiply(step, sums);
      loop.keep(step, first, mine, sums);
    }
    if (last == loop.groups) ptx::let_successor_start();
    __syncthreads();
    f = output.add(waiting, last - first, f);
  }
  output.finish_group(a, rows, f);
  if (rows.paired) {
    finish_codes<kGroupRows / 2>(a.codes, a.out, a.tokens, a.segments[0].rows, rows.column);
  } else {
    finish_codes<kGroupRows>(a.codes, a.out, a.tokens, a.segments[0].rows, rows.column);
  }
}

namespace {

// With more outputs, 9 to 16 tokens are faster in tiles of 64 outputs (int_gemm.cuh), which share
// the inputs; with fewer, these are too few blocks. Estimated from measurements on an H200.
std::int64_t most_tokens(const IntMatmul& a) {
  const std::int64_t most_outputs = a.segments[0].weight.bits == 4 ? 16384 : 132 * 64;
  return (outputs_of(a) < most_outputs ? 2 : 1) * kSideTokens;
}

template <int bits>
void launch_groups(const IntMatmul& a, rt::Stream& stream) {
  if (a.tokens == 1) {
    return rt::run(stream, groups_launch("int_gemv_groups", a), int_gemv_groups<bits>, a);
  }
  const std::int64_t groups = div_up(a.columns, kGroupColumns);
  const int sides = a.tokens <= kSideTokens ? 1 : 2;
  const std::int64_t waiting = std::min(groups * sides, std::int64_t{kTokenRound}) * kSideTokens;
  const bool zeros = a.segments[0].weight.zeros != nullptr;
  const auto kernel = sides == 1
                          ? zeros ? int_gemv_tokens<bits, true, 1> : int_gemv_tokens<bits, false, 1>
                      : zeros ? int_gemv_tokens<bits, true, 2>
                              : int_gemv_tokens<bits, false, 2>;
  rt::Launch launch = groups_launch("int_gemv_tokens", a);
  launch.shared_bytes = static_cast<std::size_t>(waiting * kGroupRows) * sizeof(WaitingSum);
  rt::run(stream, launch, kernel, a);
}

template <int bits>
void launch(const IntMatmul& a, rt::Stream& stream) {
  if constexpr (bits != kTableBits) {
    if (has_groups_of_128(a, a.tokens)) return launch_groups<bits>(a, stream);
  }
  const bool grouped = a.segments[0].weight.group > 0 || a.x.group > 0;
  auto* kernel = int_gemv<bits, true>;
  // Codes of fewer than 8 bits always have groups.
  if constexpr (bits == 8) {
    if (!grouped) kernel = int_gemv<8, false>;
  }
  rt::run(stream,
          {"int_gemv", rt::grid(row_tiles(a, kGemvBlockRows<bits>)), kGemvWarps * 32,
           grouped ? kGemvWarps * sizeof(WaitingGroups<bits>) : 0, rt::Start::early},
          kernel, a);
}

}  // namespace

bool has_int_gemv_tokens(const IntMatmul& a) {
  return a.tokens > 1 && has_groups_of_128(a, a.tokens);
}

bool has_int_gemv(const IntMatmul& a) {
  return a.tokens == 1 || (a.tokens <= most_tokens(a) && has_groups_of_128(a, a.tokens));
}

void launch_int_gemv(const IntMatmul& a, rt::Stream& stream) {
  launch_by_codes(a.segments[0].weight, [&]<int bits>() { launch<bits>(a, stream); });
}

}  // namespace leq::LEQ_GPU
