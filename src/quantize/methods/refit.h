// Scales solved again for codes that stay: the best scales of a row's groups together.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"

namespace leq {

// Solves A s = r for each row, A_gh = c_g H c_h^T, r_g = c_g H w^T with c_g the row's codes (minus
// the zero point) in group g, and puts the rounded scales into `ranges` where the row's loss falls
// with them; returns how many rows took new scales. A scale keeps its sign and its group's codes.
// Scaling::tensor is left alone.
std::int64_t refit_scales(const MethodInput& input, std::span<const std::int16_t> codes,
                          const Hessian& hessian, Ranges& ranges, ThreadPool& pool);

// A scale as the file holds it: f16 times scale_mul where groups have scales, else itself. 0 where
// it would vanish or is too large.
float stored_scale(float scale, float scale_mul, const QuantScheme& scheme);

}  // namespace leq
