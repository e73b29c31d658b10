// Fills the planes of synthetic weights with random numbers, at the speed of memory.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "format/leq_reader.h"

namespace leq {

// Fills all planes of `tensors`, whose offsets count from `memory`, and sets each view's scale_mul.
// The same numbers for any number of threads. Float matrices: variance 1 / columns. Vectors: norm
// gains near 1, biases near 0. Columns of integer matrices must be a multiple of 128.
void fill_random(std::vector<StoredTensor>& tensors, std::byte* memory, ThreadPool& pool);

}  // namespace leq
