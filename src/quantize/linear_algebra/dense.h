// Division of the tiles of X^T X among several ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/linear_algebra/matrix.h"
#include "ranks/communicator.h"

namespace leq {

// Index of a rank among `count` ranks that divide the tiles. One rank computes each element.
struct TileShare {
  std::int64_t index = 0, count = 1;
};

// A tile of X^T X [K][K]: rows [top, bottom) and columns [left, right) of the upper triangle. A
// tile on the diagonal also includes its part of the lower triangle.
struct TileCorners {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
};
std::vector<TileCorners> tiles_of(std::int64_t columns, const TileShare& share);

// Copies a tile of the upper triangle, transposed, into the lower triangle.
void mirror(const TileCorners& tile, std::int64_t columns, std::span<double> h);

// Dense linear algebra for second-order methods: X^T X, a triangular factor, products. Work is cut
// into fixed tiles, and each element is a fixed sequence of fused multiply-adds (tile_kernels.h),
// so that results do not depend on the number of threads or the instruction set.

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
