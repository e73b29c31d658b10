// Fills the planes of synthetic weights with random numbers, at the speed of memory.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "format/leq_reader.h"

namespace leq {

// Fills all planes of `tensors`, whose offsets are relative to `memory`, and sets each scale_mul.
// The numbers do not depend on the number of threads. Float matrices have variance 1 / columns,
// norm gains are near 1, biases near 0. Columns of integer matrices must be a multiple of 128.
void fill_random(std::vector<StoredTensor>& tensors, std::byte* memory, ThreadPool& pool);

}  // namespace leq
