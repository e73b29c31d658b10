// Copies rows of an embedding table as f32, one block per token; gathers rows of activations.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/code_weight.cuh"
#include "sampling/sample.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;

// Returns the table row of a token. After a draw without a token (negative), results are discarded.
__device__ __forceinline__ std::int64_t row_of(const EmbedArguments& a, std::int64_t token) {
  const std::int32_t id = a.ids[token];
  return is_placeholder_id(id) ? max(a.drawn[row_of_placeholder(id)], 0) : id;
}

__global__ void __launch_bounds__(kThreads) embed_rows(const LEQ_GRID_CONSTANT EmbedArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x, row = row_of(a, token);
  float* x = a.x.values + token * a.x.stride;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) {
    const float value = a.is_float ? float_number(a.floats, row, k, a.width)
                                   : static_cast<float>(code_number(a.codes, row, k, a.width)) *
                                         code_scale(a.codes, row, k, a.width);
    x[k] = a.add ? x[k] + value : value * a.scale;
  }
}

__global__ void __launch_bounds__(kThreads) gather_rows(const LEQ_GRID_CONSTANT GatherArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t row = a.rows[blockIdx.x];
  const float* x = a.x.values + row * a.x.stride;
  float* out = a.out.values + blockIdx.x * a.out.stride;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) out[k] = x[k];
}

}  // namespace

void launch_embed(const EmbedArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(
      stream,
      {"embed_rows", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads), 0, rt::Start::early},
      embed_rows, a);
}

void launch_gather(const GatherArguments& a, rt::Stream& stream) {
  if (a.count <= 0) return;
  rt::run(
      stream,
      {"gather_rows", dim3(static_cast<unsigned>(a.count)), dim3(kThreads), 0, rt::Start::early},
      gather_rows, a);
}

}  // namespace leq::LEQ_GPU
