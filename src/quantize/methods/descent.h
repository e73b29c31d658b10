// Coordinate descent over integer codes. In a few passes over the columns, each code moves to the
// value that minimizes the squared error of the outputs while all other codes are fixed.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"

namespace leq {

// Moves codes [N][K] in fixed ranges, in at most `passes` passes; returns the number of moves. With
// g = H (w - q), the best move of code j is rne(g_j / (H_jj s)), clipped to the limits of codes. No
// move increases a row's loss (w - q) H (w - q)^T. Independent of the number of threads.
std::int64_t descend(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                     int passes, std::span<std::int16_t> codes, ThreadPool& pool);

}  // namespace leq
