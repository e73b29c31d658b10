// The weighted sums of the outputs of experts as a launch of their own.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/add_experts.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    add_experts(const LEQ_GRID_CONSTANT AddExpertsArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x;
  const std::int64_t c = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c < a.width) add_column(a, token, c);
}

}  // namespace

void launch_add_experts(const AddExpertsArguments& a, rt::Stream& stream) {
  rt::run(
      stream,
      {"add_experts", rt::grid(a.tokens, div_up(a.width, kThreads)), kThreads, 0, rt::Start::early},
      add_experts, a);
}

}  // namespace leq::LEQ_GPU
