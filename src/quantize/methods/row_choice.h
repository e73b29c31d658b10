// Ranges and codes of a weight with the loss of each row, for taking the best of several choices
// row by row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"

namespace leq {

struct RowChoice {
  Ranges ranges;
  std::vector<std::int16_t> codes;  // [N][K]
  std::vector<double> losses;       // [N] d H d^T, d = w - q
};

// Makes the scales of both multiples of one scale_mul, so that one tensor can hold rows of either.
void share_scale_mul(Ranges& left, Ranges& right, const QuantScheme& scheme);

// The nearest codes in given ranges, with losses under `hessian`.
RowChoice nearest_choice(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                         ThreadPool& pool);

// Takes rows of `other` where their loss is smaller; all or none where rows share one scale. The
// ranges of both share one scale_mul, and their losses have the same H.
void take_better_rows(const RowChoice& other, const MethodInput& input, RowChoice& choice);

// The result with its losses under `hessian`.
MethodResult result_of(RowChoice choice, const MethodInput& input, const Hessian& hessian,
                       std::string note, ThreadPool& pool);

}  // namespace leq
