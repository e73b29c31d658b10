// Dense linear algebra for second-order methods: X^T X, a triangular factor, products. Work is cut
// into fixed tiles, and each element is a fixed sequence of fused multiply-adds (tile_kernels.h),
// so that results do not depend on the number of threads or the instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "quantize/linear_algebra/lower_matrix.h"
#include "quantize/linear_algebra/tile_share.h"

namespace leq {

// h [K][K] += X^T X for x [T][K], both triangles, for the tiles of `share`. Products are summed in
// f32 within shards of 2,048 rows, and the shards are added in double in order. The same sequence
// of calls therefore gives the same h.
void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool, const TileShare& share = {});
// Replaces the lower triangle of the symmetric `a` by L with a = L^T L. Returns false, with `a`
// undefined, if `a` is not positive definite: the square of a diagonal element of L is below 1e-10
// of a's. Several ranks divide the work: all pass the same `a`, and all receive L.
bool factor_lower(LowerMatrix& a, ThreadPool& pool, Communicator& ranks = one_rank());

// Solves A x = b for a small positive definite a [n][n]; overwrites `a`, and replaces b in `x` by
// the solution. Single-threaded. Returns false if `a` is not positive definite.
bool solve_positive(std::span<double> a, std::span<double> x);

// A row-major view of a block of a larger matrix.
template <class Real>
struct Block {
  Real* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // distance between rows
};

// c += a b, single-threaded.
void add_product(Block<const float> a, Block<const float> b, Block<float> c);
void add_product(Block<const double> a, Block<const double> b, Block<double> c);

}  // namespace leq
