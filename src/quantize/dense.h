// Dense linear algebra for second-order methods: X^T X, a triangular factor, products of tiles.
// Work is cut into fixed tiles that the pool's threads take; each tile is one call of a serial
// BLAS, so results depend on the shapes alone, never on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace leq {

// h [K][K] += X^T X for x [T][K], both triangles. Products in f32 over shards of 2,048 rows, shards
// added in double in their order: the same h for the same sequence of calls.
void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool);

// Replaces the upper triangle of the symmetric a [n][n] by V with a = V V^T, V upper triangular;
// what is left below the diagonal has no meaning. False where `a` is not positive definite: a
// square of V's diagonal is below 1e-10 of a's. Then `a` is spoilt.
bool factor_upper(std::span<double> a, std::int64_t n, ThreadPool& pool);

// x := the solution of A x = x for one small positive definite a [n][n] (spoilt), in this thread.
// False where `a` is not positive definite.
bool solve_positive(std::span<double> a, std::span<double> x);

// A row-major block of a larger matrix.
template <class Real>
struct Block {
  Real* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // from row to row
};

// c += a b, in this thread.
void add_product(Block<const float> a, Block<const float> b, Block<float> c);
void add_product(Block<const double> a, Block<const double> b, Block<double> c);

}  // namespace leq
