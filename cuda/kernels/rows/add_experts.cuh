// The weighted sum of the outputs of a token's experts.
#pragma once

#include "cuda/intrinsics/last_block.cuh"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Computes column c of a token. Other blocks of the launch may have written the products.
__device__ __forceinline__ void add_column(const AddExpertsArguments& a, std::int64_t token,
                                           std::int64_t c) {
  const int active = a.choice.active;
  const float* const chosen = a.choice.rows + token * a.choice.stride;
  const auto* const places = reinterpret_cast<const std::int32_t*>(chosen) + 2 * active;
  const auto product = [&](std::int64_t row) {
    return read_fresh(a.products.values + row * a.products.stride + c);
  };
  float sum = a.fresh ? 0.0f : a.x.values[token * a.x.stride + c];
  for (int i = 0; i < active; ++i) {
    const float y = product(a.in_groups ? places[i] : token * active + i);
    sum = sum + chosen[active + i] * y;
  }
  if (a.has_shared) sum = sum + chosen[3 * active] * product(a.tokens * active + token);
  a.x.values[token * a.x.stride + c] = sum;
}

}  // namespace leq::LEQ_GPU
