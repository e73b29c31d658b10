// X^T X of a window's inputs.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace leq {

// h [K][K] += X^T X of x [T][K], both triangles; the same for any number of threads.
void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool);

}  // namespace leq
