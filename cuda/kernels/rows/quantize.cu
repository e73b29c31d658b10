// Encodes finished f32 rows as int8 codes or terms; one block per row.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/held.cuh"
#include "cuda/kernels/rows/online.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;

// Without a minimum number of blocks, ptxas would use at most 40 registers on sm_90, and spill.
__global__ void __launch_bounds__(kThreads, 4)
    quantize_rows(const LEQ_GRID_CONSTANT QuantizeArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  const HeldColumns<kThreads> factors(a.inv_smooth, a.width);
  ptx::wait_for_predecessor();
  float* const row = a.x.values + blockIdx.x * a.x.stride;
  if (a.inv_smooth != nullptr) {
    const HeldColumns<kThreads> x(row, a.width);
    for_columns<kThreads>(
        a.width, [&](int k, int i) { row[k] = column_of(x, k, i) * column_of(factors, k, i); });
    __syncthreads();
  }
  finish_row(row, blockIdx.x, a.width, a.quantize);
}

}  // namespace

void launch_quantize(const QuantizeArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(
      stream,
      {"quantize_rows", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads), 0, rt::Start::early},
      quantize_rows, a);
}

}  // namespace leq::LEQ_GPU
