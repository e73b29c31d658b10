// The weighted sum of the outputs of a token's experts.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"

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
  if (c >= a.width) return;
  const int active = a.choice.active;
  const float* const chosen = a.choice.rows + token * a.choice.stride;
  const auto* const places = reinterpret_cast<const std::int32_t*>(chosen) + 2 * active;
  const auto product = [&](std::int64_t row) {
    return a.products.values[row * a.products.stride + c];
  };
  float sum = a.fresh ? 0.0f : a.x.values[token * a.x.stride + c];
  for (int i = 0; i < active; ++i) {
    const float y = product(a.in_groups ? places[i] : token * active + i);
    sum = sum + chosen[active + i] * y;
  }
  if (a.has_shared) sum = sum + chosen[3 * active] * product(a.tokens * active + token);
  a.x.values[token * a.x.stride + c] = sum;
}

}  // namespace

void launch_add_experts(const AddExpertsArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(stream,
          {"add_experts",
           dim3(static_cast<unsigned>(a.tokens),
                static_cast<unsigned>((a.width + kThreads - 1) / kThreads)),
           dim3(kThreads), 0, rt::Start::early},
          add_experts, a);
}

}  // namespace leq::LEQ_GPU
