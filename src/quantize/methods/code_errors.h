// Errors W - Q of the chosen codes and the loss in the outputs. Rows are the lanes of panels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/linear_algebra/lanes.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"

namespace leq {

// [panels][K] w - scale * (code - zero) of `count` rows from `first` on; unused lanes are 0.
LanePanels<float> code_errors(const MethodInput& input, const Ranges& ranges,
                              std::span<const std::int16_t> codes, std::int64_t first,
                              std::int64_t count);

// Loss d H d^T of every row d of `rows` [N][K]: [N]. Products in f32, sums over a row in double.
std::vector<double> row_energies(std::span<const float> rows, const Hessian& hessian,
                                 ThreadPool& pool);
// Losses d H d^T of the rows d of W - Q: [N].
std::vector<double> row_losses(const MethodInput& input, const Ranges& ranges,
                               std::span<const std::int16_t> codes, const Hessian& hessian,
                               ThreadPool& pool);

}  // namespace leq
