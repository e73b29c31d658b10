// Refits scales for fixed codes: finds the best scales of all groups of a row together.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"

namespace leq {

// Solves A s = r for each row, with A_gh = c_g H c_h^T and r_g = c_g H w^T, where c_g are the row's
// codes (minus the zero point) in group g. Stores the rounded scales in `ranges` if they reduce the
// row's loss; returns how many rows were changed. A scale keeps its sign and its group's codes.
// Scaling::tensor is left unchanged.
std::int64_t refit_scales(const MethodInput& input, std::span<const std::int16_t> codes,
                          const Hessian& hessian, Ranges& ranges, ThreadPool& pool);

// A scale as the file stores it: group scales are f16 times scale_mul, others unchanged. Returns 0
// if it underflows or is too large.
float stored_scale(float scale, float scale_mul, const QuantScheme& scheme);

}  // namespace leq
