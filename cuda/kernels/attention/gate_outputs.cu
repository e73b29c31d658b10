// Multiplies attention outputs by the sigmoid of the gates, which follow v in a row, and quantizes
// them.
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/output_codes.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 128;  // columns that share a scale of codes

__global__ void __launch_bounds__(kThreads)
    gate_outputs(const LEQ_GRID_CONSTANT GateOutputsArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t row = blockIdx.x, first = std::int64_t{blockIdx.y} * kThreads;
  const std::int64_t c = first + threadIdx.x;
  if (c < a.width) {
    float& out = a.out.values[row * a.out.stride + c];
    out = out / (1.0f + device_exp(-a.gates.values[row * a.gates.stride + c]));
  }
  __syncthreads();
  if (!a.codes.exist() || threadIdx.x >= 32) return;
  quantize_outputs(a.codes, a.out, row, first, a.width);
}

}  // namespace

void launch_gate_outputs(const GateOutputsArguments& a, rt::Stream& stream) {
  rt::run(stream,
          {"gate_outputs", rt::grid(a.tokens, div_up(a.width, kThreads)), kThreads, 0,
           rt::Start::early},
          gate_outputs, a);
}

}  // namespace leq::LEQ_GPU
