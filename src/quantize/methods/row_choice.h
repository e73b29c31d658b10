// Ranges and codes of a weight with the loss of each row, so that the best of several choices can
// be taken for each row.
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

// Converts the scales of `left` and `right` to one scale_mul, so that a tensor can mix their rows.
void share_scale_mul(Ranges& left, Ranges& right, const QuantScheme& scheme);

// Nearest codes in the given ranges, with losses under `hessian`.
RowChoice nearest_choice(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                         ThreadPool& pool);

// Replaces rows by those of `other` with a smaller loss; all rows or none if rows share one scale.
// The ranges of both choices must share one scale_mul, and their losses must be under one H.
void take_better_rows(const RowChoice& other, const MethodInput& input, RowChoice& choice);

// The choice as a method's result, with its losses under `hessian`.
MethodResult result_of(RowChoice choice, const MethodInput& input, const Hessian& hessian,
                       std::string note, ThreadPool& pool);

}  // namespace leq
