// W - Q of chosen codes, and what it costs in the outputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/fit.h"
#include "quantize/hessian.h"
#include "quantize/method.h"

namespace leq {

// out [count][K] = w - scale * (code - zero), rows first ... first + count.
void code_errors(const MethodInput& input, const Ranges& ranges,
                 std::span<const std::int16_t> codes, std::int64_t first, std::int64_t count,
                 std::span<float> out);

// d H d^T of every row d of W - Q: [N], products in f32, sums over a row in double.
std::vector<double> row_losses(const MethodInput& input, const Ranges& ranges,
                               std::span<const std::int16_t> codes, const Hessian& hessian,
                               ThreadPool& pool);

}  // namespace leq
