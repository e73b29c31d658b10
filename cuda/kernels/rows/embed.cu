// Copies rows of an embedding table as f32; gathers rows of activations. A block has kColumns of a
// row, of which each thread has four. Single numbers of a table are read by the functions that
// define what codes mean.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/rows/quads.cuh"
#include "cuda/layout/layout.h"
#include "sampling/sample.h"

namespace leq::LEQ_GPU {
namespace {

// The unsigned code at (row, column), also for 3 bits, which are stored as signed numbers.
__device__ __forceinline__ int stored_code(const CodeWeight& w, std::int64_t row,
                                           std::int64_t column, std::int64_t columns) {
  const std::uint8_t* const codes = w.codes + row * (padded_columns(columns) * w.bits / 8);
  if (w.bits == 3) {
    const auto* const words =
        reinterpret_cast<const std::uint32_t*>(codes + three_bit_byte(column));
    const std::uint32_t quad = three_bit_quad(static_cast<int>(column % 128 / 16),
                                              [&](int chunk) { return words[chunk * 4]; });
    return static_cast<std::int8_t>(quad >> column % 4 * 8) / 32 + 4;
  }
  return codes[code_byte(w.bits, column)] >> code_shift(w.bits, column) & ((1 << w.bits) - 1);
}

__device__ __forceinline__ std::int64_t group_index(const CodeWeight& w, std::int64_t row,
                                                    std::int64_t column, std::int64_t columns) {
  const int shift = group_shift(w.group);
  return row * (padded_columns(columns) >> shift) + (column >> shift);
}

// The signed value of a code: its zero point is subtracted.
__device__ __forceinline__ int code_number(const CodeWeight& w, std::int64_t row,
                                           std::int64_t column, std::int64_t columns) {
  if (w.bits == 8 && w.zeros == nullptr && w.zero == 0) {
    return static_cast<std::int8_t>(w.codes[row * padded_columns(columns) + column]);
  }
  const int code = stored_code(w, row, column, columns);
  if (w.has_table) return static_cast<std::int8_t>(w.table[code / 4] >> code % 4 * 8);
  if (w.zeros == nullptr) return code - w.zero;
  return code - w.zeros[w.group == 0 ? row : group_index(w, row, column, columns)];
}

__device__ __forceinline__ float code_scale(const CodeWeight& w, std::int64_t row,
                                            std::int64_t column, std::int64_t columns) {
  if (w.group == 0) return w.row_scales[row];
  return ptx::f16_to_f32(w.group_scales[group_index(w, row, column, columns)]) * w.scale_mul;
}

__device__ __forceinline__ float float_number(const FloatWeight& w, std::int64_t row,
                                              std::int64_t column, std::int64_t columns) {
  const std::int64_t at = row * float_stride(columns) + column;
  if (w.type == FloatType::f32) return static_cast<const float*>(w.values)[at];
  const std::uint16_t half = static_cast<const std::uint16_t*>(w.values)[at];
  return w.type == FloatType::f16 ? ptx::f16_to_f32(half) : ptx::bf16_to_f32(half);
}

constexpr int kThreads = 256, kColumns = kThreads * 4;

__device__ __forceinline__ int first_column() {
  return static_cast<int>(blockIdx.y) * kColumns + static_cast<int>(threadIdx.x) * 4;
}

// Returns the table row of a token. After a draw without a token (negative), results are discarded.
__device__ __forceinline__ std::int64_t row_of(const EmbedArguments& a, std::int64_t token) {
  const std::int32_t id = a.ids[token];
  return is_placeholder_id(id) ? max(a.drawn[row_of_placeholder(id)], 0) : id;
}

__global__ void __launch_bounds__(kThreads) embed_rows(const LEQ_GRID_CONSTANT EmbedArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const int first = first_column(), width = static_cast<int>(a.width);
  if (first >= width) return;
  const std::int64_t token = blockIdx.x, row = row_of(a, token);
  float* const x = a.x.values + token * a.x.stride;
  // A group has a multiple of 32 columns, so that the four have one scale.
  const float scale = a.is_float ? 1.0f : code_scale(a.codes, row, first, a.width);
  Quad values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t k = min(first + i, width - 1);
    values.x[i] = a.is_float ? float_number(a.floats, row, k, a.width)
                             : static_cast<float>(code_number(a.codes, row, k, a.width)) * scale;
  }
  const Quad before = a.add ? load_quad(x, first, width) : Quad();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.x[i] = a.add ? before.x[i] + values.x[i] : values.x[i] * a.scale;
  }
  store_quad(x, first, width, values);
}

__global__ void __launch_bounds__(kThreads) gather_rows(const LEQ_GRID_CONSTANT GatherArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const int first = first_column(), width = static_cast<int>(a.width);
  if (first >= width) return;
  const float* const x = a.x.values + a.rows[blockIdx.x] * a.x.stride;
  store_quad(a.out.values + blockIdx.x * a.out.stride, first, width, load_quad(x, first, width));
}

}  // namespace

void launch_embed(const EmbedArguments& a, rt::Stream& stream) {
  const dim3 blocks = rt::grid(a.tokens, div_up(a.width, kColumns));
  rt::run(stream, {"embed_rows", blocks, kThreads, 0, rt::Start::early}, embed_rows, a);
}

void launch_gather(const GatherArguments& a, rt::Stream& stream) {
  const dim3 blocks = rt::grid(a.count, div_up(a.width, kColumns));
  rt::run(stream, {"gather_rows", blocks, kThreads, 0, rt::Start::early}, gather_rows, a);
}

}  // namespace leq::LEQ_GPU
