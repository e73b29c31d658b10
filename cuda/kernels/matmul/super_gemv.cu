// Few tokens times weights of a k type by dp4a. A block has 16 rows, whose chunks of 128 columns
// its warps take in turn. A lane has 16 columns of four neighbouring rows, which are 16 bytes of a
// plane. Lanes add their int32 sums, and one thread per output adds spans of columns in ascending
// order.
#include <algorithm>

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/row_tiles.cuh"
#include "cuda/kernels/matmul/super_row.cuh"
#include "cuda/kernels/rows/norm.cuh"
#include "cuda/kernels/rows/output_codes.cuh"
#include "sampling/sample.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 16;     // rows of a block
constexpr int kChunk = 128;   // columns that a warp processes at once
constexpr int kLaneRows = 4;  // rows of a lane

// A queued sum of a span, and its factor.
struct alignas(8) SpanSum {
  float sum, scale;
};

// span: the columns of a sum. A span has a sum of products with s * u, and except for 6 bits one of
// products with m.
template <int bits, int tokens, int span>
struct SuperShape {
  static constexpr int kKinds = bits == 6 ? 1 : 2, kSpans = kChunk / span;
  static constexpr int kSums = tokens * kKinds * kLaneRows;          // of a lane
  static constexpr int kLanes = span / 16;                           // lanes that share a sum
  static constexpr int kKept = kSums < kLanes ? 1 : kSums / kLanes;  // sums that a lane finishes
  static constexpr int kRound = 128 / tokens / kSpans;  // capacity of the queue, in chunks
  static constexpr int kSpanSums = tokens * kKinds * kRows;
  static_assert(kRound % kWarps == 0);
};

// Totals of `count` numbers over the lanes that differ in the bits `mask` ... 4 of their index.
// Lanes exchange halves: a lane then has the numbers from first_kept on.
template <int mask, int count, int size>
__device__ __forceinline__ void add_lanes(int (&values)[size]) {
  if constexpr (mask >= 4) {
    if constexpr (count == 1) {
      values[0] += __shfl_xor_sync(kEveryLane, values[0], mask);
    } else {
      const bool upper = (threadIdx.x & mask) != 0;
#pragma unroll
      for (int i = 0; i < count / 2; ++i) {
        const int keep = upper ? values[i + count / 2] : values[i];
        const int give = upper ? values[i] : values[i + count / 2];
        values[i] = keep + __shfl_xor_sync(kEveryLane, give, mask);
      }
    }
    add_lanes<mask / 2, (count > 1 ? count / 2 : 1)>(values);
  }
}
template <int mask, int count>
__device__ __forceinline__ int first_kept() {
  if constexpr (mask < 4 || count == 1) {
    return 0;
  } else {
    return ((threadIdx.x & mask) != 0 ? count / 2 : 0) + first_kept<mask / 2, count / 2>();
  }
}

// A lane's part of a chunk.
template <int bits, int kept>
struct SuperStep {
  uint4 low[2], high;
  std::uint32_t scales, minima;  // a byte of each row
  std::uint16_t supers[kept];    // of the sums that the lane finishes
};

template <int bits, int tokens, int span>
struct SuperLoop {
  using Shape = SuperShape<bits, tokens, span>;
  using Step = SuperStep<bits, Shape::kKept>;
  const SuperMatmul& a;
  int chunks, spans, run, first;  // run: the lane's 16 columns in a chunk; first: its first sum
  std::int64_t token;             // of the block's first
  SuperRow<bits> rows;            // the lane's first row
  SpanSum* waiting;

  __device__ __forceinline__ SuperLoop(const SuperMatmul& arguments, const SuperSegment& segment,
                                       std::int64_t row, std::int64_t first_token, SpanSum* queue)
      : a(arguments),
        chunks(static_cast<int>(round_up_to(a.columns, kChunk)) / kChunk),
        spans(static_cast<int>((a.columns + span - 1) / span)),
        run(static_cast<int>(threadIdx.x % 32) / 4),
        first(first_kept<Shape::kLanes * 2, Shape::kSums>()),
        token(first_token),
        rows(segment.weight, row + threadIdx.x % 4 * kLaneRows, round_up_to(a.columns, kChunk)),
        waiting(queue + threadIdx.x % 4 * kLaneRows) {}

  // May precede the wait, because no kernel writes weights.
  __device__ __forceinline__ void load(int chunk, Step& step) const {
    const int at = min(chunk, chunks - 1) * 8 + run;
    step.low[0] = ptx::load_once(rows.codes + std::int64_t{at} * 512);
    step.low[1] = ptx::load_once(rows.codes + std::int64_t{at} * 512 + 256);
    if constexpr (bits > 4) {
      step.high = ptx::load_once(rows.high + std::int64_t{bits == 5 ? at / 2 : at} * 256);
    }
    const auto word = [&](int of) {
      return *reinterpret_cast<const std::uint32_t*>(rows.subs + of * kPanel);
    };
    step.scales = word(bits == 6 ? at : at & ~1);
    if constexpr (bits != 6) step.minima = word(at | 1);
#pragma unroll
    for (int i = 0; i < Shape::kKept; ++i) {
      const int kind = (first + i) / kLaneRows % Shape::kKinds;
      step.supers[i] =
          rows.supers[(at / 16 * Shape::kKinds + kind) * kPanel + (first + i) % kLaneRows];
    }
  }

  __device__ __forceinline__ void multiply(const Step& step, int chunk,
                                           int (&sums)[Shape::kSums]) const {
    const auto word = [](const uint4& of, int i) {
      return i == 0 ? of.x : i == 1 ? of.y : i == 2 ? of.z : of.w;
    };
    uint4 x[tokens];
    int inputs[tokens] = {}, dots[tokens][kLaneRows] = {};
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      const std::int64_t row = min(token + t, a.tokens - 1);
      x[t] = *reinterpret_cast<const uint4*>(a.x.codes + row * a.x.code_stride + chunk * kChunk +
                                             run * 16);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int t = 0; t < tokens; ++t) {
        inputs[t] = ptx::dp4a_u8s8(kOnes, word(x[t], j), inputs[t]);
      }
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        std::uint32_t high = 0;
        if constexpr (bits > 4) high = word(step.high, r);
        if constexpr (bits == 5) high >>= run % 2 * 4;
        const std::uint32_t codes = super_quad<bits>(word(step.low[j / 2], r), j % 2, high, j);
#pragma unroll
        for (int t = 0; t < tokens; ++t) {
          dots[t][r] = ptx::dp4a_u8s8(codes, word(x[t], j), dots[t][r]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        int* const to = sums + t * Shape::kKinds * kLaneRows + r;
        const int byte = static_cast<int>(step.scales >> r * 8 & 255u);
        if constexpr (bits == 6) {
          to[0] = static_cast<std::int8_t>(byte) * (dots[t][r] - 32 * inputs[t]);
        } else {
          to[0] = byte * dots[t][r];
          to[kLaneRows] = -static_cast<int>(step.minima >> r * 8 & 255u) * inputs[t];
        }
      }
    }
  }

  // Adds the sums of lanes, and queues them with their factors. `slot` is the chunk's in the queue.
  __device__ __forceinline__ void keep(const Step& step, int chunk, int slot,
                                       int (&sums)[Shape::kSums]) const {
    add_lanes<Shape::kLanes * 2, Shape::kSums>(sums);
    const int in_chunk = run / Shape::kLanes;
    const int at = min(chunk * Shape::kSpans + in_chunk, spans - 1);
#pragma unroll
    for (int i = 0; i < Shape::kKept; ++i) {
      const int sum = first + i, of_token = sum / (kLaneRows * Shape::kKinds);
      const std::int64_t row = min(token + of_token, a.tokens - 1);
      const float by_token = a.x.scales[row * a.x.scale_stride + (a.x.group > 0 ? at : 0)];
      waiting[(slot * Shape::kSpans + in_chunk) * Shape::kSpanSums + sum / kLaneRows * kRows +
              sum % kLaneRows] = {static_cast<float>(sums[i]),
                                  ptx::f16_to_f32(step.supers[i]) * by_token};
    }
  }

  // Continues f of the thread's output, row threadIdx.x % 16 of token threadIdx.x / 16, by queued
  // spans.
  __device__ __forceinline__ float add(const SpanSum* queue, int count, float f) const {
    if (threadIdx.x >= kRows * tokens) return f;
    const int thread = static_cast<int>(threadIdx.x);
    queue += thread / kRows * Shape::kKinds * kRows + thread % kRows;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
#pragma unroll
      for (int kind = 0; kind < Shape::kKinds; ++kind) {
        const SpanSum next = queue[i * Shape::kSpanSums + kind * kRows];
        f = fmaf(next.sum, next.scale, f);
      }
    }
    return f;
  }
};

// The rows of a block: 16 rows of one segment; if gated 16 of gate, and the same rows of up.
template <class Arguments>
constexpr int block_rows(const Arguments& a) {
  return is_gated(a.finish) ? 2 * kRows : kRows;
}
struct SuperBlock : RowTile {
  __device__ __forceinline__ explicit SuperBlock(const SuperMatmul& a)
      : RowTile(a, static_cast<int>(blockIdx.x), block_rows(a)) {}
};

// y of the thread's output. `early`: the wait for the preceding kernel is still to come.
template <int bits, int tokens, int span>
__device__ __forceinline__ float multiply_rows(const SuperMatmul& a, const SuperSegment& segment,
                                               std::int64_t row, bool early, SpanSum* queue) {
  using Shape = SuperShape<bits, tokens, span>;
  const SuperLoop<bits, tokens, span> loop(a, segment, row, std::int64_t{blockIdx.y} * tokens,
                                           queue);
  SuperStep<bits, Shape::kKept> next;
  int chunk = static_cast<int>(threadIdx.x / 32);
  loop.load(chunk, next);
  if (early) ptx::wait_for_predecessor();
  float f = 0;
  for (int first = 0; first < loop.chunks; first += Shape::kRound) {
    const int last = min(first + Shape::kRound, loop.chunks);
    for (; chunk < last; chunk += kWarps) {
      const SuperStep<bits, Shape::kKept> step = next;
      loop.load(chunk + kWarps, next);
      int sums[Shape::kSums];
      loop.multiply(step, chunk, sums);
      loop.keep(step, chunk, chunk - first, sums);
    }
    __syncthreads();
    f = loop.add(queue, min(last * Shape::kSpans, loop.spans) - first * Shape::kSpans, f);
    __syncthreads();
  }
  const std::int64_t at = row + threadIdx.x % kRows;
  return segment.bias != nullptr && at < segment.rows ? f + segment.bias[at] : f;
}

// Computes the block's outputs of all its tokens.
template <int bits, int tokens, int span>
__device__ __forceinline__ void super_block(const SuperMatmul& a, const SuperBlock& block) {
  LEQ_DYNAMIC_SHARED(SpanSum, queue);
  const SuperSegment& segment = a.segments[block.segment];
  const float y = multiply_rows<bits, tokens, span>(a, segment, block.first, true, queue);
  float up = 0;
  if (is_gated(a.finish)) {
    up = multiply_rows<bits, tokens, span>(a, a.segments[1], block.first, false, queue);
  }
  ptx::let_successor_start();
  const std::int64_t token = std::int64_t{blockIdx.y} * tokens + threadIdx.x / kRows;
  const auto row = static_cast<std::int64_t>(threadIdx.x % kRows);
  if (threadIdx.x >= kRows * tokens || token >= a.tokens || block.first + row >= segment.rows)
    return;
  finish(a.finish, a.out, token, block.column + row, y, up);
}

template <int bits, int tokens, int span>
__global__ void __launch_bounds__(kThreads, tokens == 1  ? 3
                                            : span == 32 ? 1
                                                         : 2)
    super_gemv(const LEQ_GRID_CONSTANT SuperMatmul a) {
  LEQ_BOUNDS(kThreads);
  const SuperBlock block(a);
  super_block<bits, tokens, span>(a, block);
  if constexpr (tokens == 1) {
    finish_codes<kRows>(a.codes, a.out, 1, a.segments[0].rows, block.column);
  }
}

// The last block to finish computes the norm of all outputs of one token.
static_assert(kThreads == kNormThreads);
template <int bits, int span>
__global__ void __launch_bounds__(kThreads, 3)
    super_gemv_norm(const LEQ_GRID_CONSTANT SuperMatmul a,
                    const LEQ_GRID_CONSTANT NormArguments next, unsigned* ticket) {
  LEQ_BOUNDS(kThreads);
  super_block<bits, 1, span>(a, SuperBlock(a));
  LEQ_DYNAMIC_SHARED(float, row);
  if (is_last_block(ticket, gridDim.x)) norm_fresh_row(next, row);
}

template <int bits, int tokens, int span>
rt::Launch launch_of(const char* kernel, const SuperMatmul& a) {
  using Shape = SuperShape<bits, tokens, span>;
  const std::int64_t chunks = std::min<std::int64_t>(div_up(a.columns, kChunk), Shape::kRound);
  return {kernel, rt::grid(row_tiles(a, block_rows(a)), div_up(a.tokens, tokens)), kThreads,
          static_cast<std::size_t>(chunks * Shape::kSpans * Shape::kSpanSums) * sizeof(SpanSum),
          rt::Start::early};
}
template <int bits, int tokens, int span>
void launch(const SuperMatmul& a, rt::Stream& stream) {
  rt::run(stream, launch_of<bits, tokens, span>("super_gemv", a), super_gemv<bits, tokens, span>,
          a);
}
template <int bits, int span>
void launch_with_norm(const SuperMatmul& a, const NormArguments& next, unsigned* tickets,
                      rt::Stream& stream) {
  rt::Launch launch = launch_of<bits, 1, span>("super_gemv_norm", a);
  launch.shared_bytes = std::max(launch.shared_bytes, row_bytes(next));
  rt::run(stream, launch, super_gemv_norm<bits, span>, a, next, tickets);
}

template <class Launch>
void launch_by_k_bits(const SuperMatmul& a, Launch launch) {
  launch_for<4, 5, 6>(a.segments[0].weight.bits, launch);
}

template <int bits>
void launch_bits(const SuperMatmul& a, rt::Stream& stream) {
  const bool narrow = a.x.group == 32;
  if (a.tokens == 1)
    return narrow ? launch<bits, 1, 32>(a, stream) : launch<bits, 1, 128>(a, stream);
  narrow ? launch<bits, 4, 32>(a, stream) : launch<bits, 4, 128>(a, stream);
}

template <int bits>
__device__ float super_number(const SuperWeight& w, std::int64_t row, int k, std::int64_t columns) {
  const SuperRow<bits> of(w, row, columns);
  const int code = static_cast<int>(of.quad(k & -4) >> k % 4 * 8 & 0xffu);
  const float scale = of.super(k, 0) * static_cast<float>(of.scale(k));
  if constexpr (bits == 6) return scale * static_cast<float>(code - 32);
  return scale * static_cast<float>(code) - of.super(k, 1) * static_cast<float>(of.minimum(k));
}

__global__ void __launch_bounds__(kThreads)
    super_embed(const LEQ_GRID_CONSTANT SuperEmbedArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x, columns = round_up_to(a.width, 128);
  const std::int32_t id = a.ids[token];
  const std::int64_t row = is_placeholder_id(id) ? max(a.drawn[row_of_placeholder(id)], 0) : id;
  for (int k = static_cast<int>(threadIdx.x); k < a.width; k += kThreads) {
    float value;
    if (a.table.bits == 4) {
      value = super_number<4>(a.table, row, k, columns);
    } else if (a.table.bits == 5) {
      value = super_number<5>(a.table, row, k, columns);
    } else {
      value = super_number<6>(a.table, row, k, columns);
    }
    a.x.values[token * a.x.stride + k] = value * a.scale;
  }
}

}  // namespace

void launch_super_matmul(const SuperMatmul& a, rt::Stream& stream) {
  constexpr std::int64_t kMaxTokens = 8;  // two reads of the weights
  if (a.tokens > kMaxTokens) {
    const bool large = gemm_tile(a.tokens, outputs_of(a)) == GemmTile::large;
    return launch_super_gemm(a, large, stream);
  }
  launch_by_k_bits(a, [&]<int bits>() { launch_bits<bits>(a, stream); });
}

bool makes_codes(const SuperMatmul& a) {
  return a.tokens == 1 && (is_gated(a.finish) || a.segment_count == 1) &&
         outputs_of(a) <= std::int64_t{kTickets} * 128;
}

bool joins(const SuperMatmul& a, const NormArguments& next) {
  return a.tokens == 1 && !is_gated(a.finish) && !a.codes.exist() &&
         joins_outputs(next, a.out, outputs_of(a));
}

void launch_joined(const SuperMatmul& a, const NormArguments& next, unsigned* tickets,
                   rt::Stream& stream) {
  const bool narrow = a.x.group == 32;
  launch_by_k_bits(a, [&]<int bits>() {
    narrow ? launch_with_norm<bits, 32>(a, next, tickets, stream)
           : launch_with_norm<bits, 128>(a, next, tickets, stream);
  });
}

void launch_super_embed(const SuperEmbedArguments& a, rt::Stream& stream) {
  rt::run(stream, {"super_embed", rt::grid(a.tokens), kThreads, 0, rt::Start::early}, super_embed,
          a);
}

}  // namespace leq::LEQ_GPU
