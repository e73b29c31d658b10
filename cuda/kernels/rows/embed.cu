// Copies rows of an embedding table as f32; gathers rows of activations. A block has kColumns of a
// row, of which each thread has four.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/code_weight.cuh"
#include "cuda/kernels/rows/quads.cuh"
#include "sampling/sample.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256, kColumns = kThreads * 4;

__device__ __forceinline__ int first_column() {
  return static_cast<int>(blockIdx.y) * kColumns + static_cast<int>(threadIdx.x) * 4;
}
dim3 blocks_of(std::int64_t rows, std::int64_t width) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>((width + kColumns - 1) / kColumns)};
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
  if (a.tokens <= 0) return;
  rt::run(stream, {"embed_rows", blocks_of(a.tokens, a.width), dim3(kThreads), 0, rt::Start::early},
          embed_rows, a);
}

void launch_gather(const GatherArguments& a, rt::Stream& stream) {
  if (a.count <= 0) return;
  rt::run(stream, {"gather_rows", blocks_of(a.count, a.width), dim3(kThreads), 0, rt::Start::early},
          gather_rows, a);
}

}  // namespace leq::LEQ_GPU
