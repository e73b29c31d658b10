#include "quantize/dense.h"

#include <cblas-openblas.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

// LAPACK's Cholesky factor, which OpenBLAS brings along without a C header.
extern "C" void dpotrf_(const char* triangle, const blasint* n, double* a, const blasint* stride,
                        blasint* info);

namespace leq {
namespace {

constexpr std::int64_t kShardTokens = 2048;
constexpr std::int64_t kProductTile = 512;  // of X^T X: 1 MB of f32
constexpr std::int64_t kFactorTile = 64;    // a step's tiles must outnumber the threads
constexpr std::int64_t kUpdateTile = 512;   // of what a step subtracts
constexpr double kSmallestPivot = 1e-10;

blasint size(std::int64_t n) { return static_cast<blasint>(n); }

// The threads are those of our pool, so OpenBLAS itself has one. Its serial build cannot be called
// from several threads at once: results differ now and then.
void one_thread_each() {
  static const bool done = [] {
    require(openblas_get_parallel() != OPENBLAS_SEQUENTIAL,
            "OpenBLAS: its serial build is not safe here; install libopenblas0-pthread");
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

// Tile pairs (row, column) with row <= column, in a list that threads take from the front.
struct TilePair {
  std::int64_t row = 0, column = 0;
};

std::vector<TilePair> upper_tiles(std::int64_t n, std::int64_t tile) {
  std::vector<TilePair> pairs;
  for (std::int64_t row = 0; row < n; row += tile) {
    for (std::int64_t column = row; column < n; column += tile) pairs.push_back({row, column});
  }
  return pairs;
}

// tile [m][n] = X[:, row...]^T X[:, column...] over `count` tokens; a tile on the diagonal gets
// its upper triangle only.
void tile_product(const float* x, std::int64_t count, std::int64_t columns, TilePair at,
                  std::int64_t m, std::int64_t n, float* tile) {
  if (at.row == at.column) {
    cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, size(n), size(count), 1.0f, x + at.row,
                size(columns), 0.0f, tile, size(n));
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, size(m), size(n), size(count), 1.0f,
              x + at.row, size(columns), x + at.column, size(columns), 0.0f, tile, size(n));
}

// h[row..., column...] += tile, and the same below the diagonal.
void add_tile(const std::vector<float>& tile, TilePair at, std::int64_t m, std::int64_t n,
              std::int64_t columns, double* h) {
  const bool diagonal = at.row == at.column;
  for (std::int64_t i = 0; i < m; ++i) {
    double* to = h + (at.row + i) * columns + at.column;
    for (std::int64_t j = diagonal ? i : 0; j < n; ++j)
      to[j] += static_cast<double>(tile[static_cast<std::size_t>(i * n + j)]);
  }
}

void mirror_tile(TilePair at, std::int64_t m, std::int64_t n, std::int64_t columns, double* h) {
  for (std::int64_t j = 0; j < n; ++j) {
    double* to = h + (at.column + j) * columns + at.row;
    const double* from = h + at.row * columns + at.column + j;
    const std::int64_t count = at.row == at.column ? j : m;
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * columns];
  }
}

// The diagonal tile a [n][n] (upper triangle valid) = V V^T. Read backwards in rows and columns, V
// is the ordinary lower factor of the matrix read backwards.
bool factor_tile(double* a, std::int64_t n, std::int64_t stride, const double* diagonal) {
  std::vector<double> turned(static_cast<std::size_t>(n * n));
  const auto backwards = [&](std::int64_t i, std::int64_t j) -> double& {
    return turned[static_cast<std::size_t>((n - 1 - j) * n + (n - 1 - i))];
  };
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i; j < n; ++j) backwards(i, j) = a[i * stride + j];
  }
  const blasint order = size(n);
  blasint info = 0;
  dpotrf_("L", &order, turned.data(), &order, &info);
  if (info != 0) return false;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i; j < n; ++j) a[i * stride + j] = backwards(i, j);
    const double pivot = a[i * stride + i];
    if (!(pivot * pivot >= kSmallestPivot * diagonal[i])) return false;
  }
  return true;
}

// a[i, j] -= V[i, first...] V[j, first...]^T for the tiles above row and column `first`.
void subtract_products(double* a, std::int64_t n, std::int64_t first, std::int64_t count,
                       ThreadPool& pool) {
  const std::vector<TilePair> tiles = upper_tiles(first, kUpdateTile);
  pool.run(std::ssize(tiles), [&](std::int64_t task, int) {
    const TilePair at = tiles[static_cast<std::size_t>(task)];
    const std::int64_t rows = std::min(kUpdateTile, first - at.row);
    const std::int64_t columns = std::min(kUpdateTile, first - at.column);
    double* c = a + at.row * n + at.column;
    const double* left = a + at.row * n + first;
    if (at.row == at.column) {
      cblas_dsyrk(CblasRowMajor, CblasUpper, CblasNoTrans, size(rows), size(count), -1.0, left,
                  size(n), 1.0, c, size(n));
    } else {
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(rows), size(columns), size(count),
                  -1.0, left, size(n), a + at.column * n + first, size(n), 1.0, c, size(n));
    }
  });
}

}  // namespace

void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool) {
  require(std::ssize(x) == tokens * columns && std::ssize(h) == columns * columns,
          "X^T X: expected ", tokens, " x ", columns, " inputs and ", columns,
          " squared sums, found ", x.size(), " and ", h.size());
  one_thread_each();
  const std::vector<TilePair> tiles = upper_tiles(columns, kProductTile);
  pool.run(std::ssize(tiles), [&](std::int64_t task, int) {
    const TilePair at = tiles[static_cast<std::size_t>(task)];
    const std::int64_t m = std::min(kProductTile, columns - at.row);
    const std::int64_t n = std::min(kProductTile, columns - at.column);
    std::vector<float> tile(static_cast<std::size_t>(m * n));
    for (std::int64_t first = 0; first < tokens; first += kShardTokens) {
      const std::int64_t count = std::min(kShardTokens, tokens - first);
      tile_product(x.data() + first * columns, count, columns, at, m, n, tile.data());
      add_tile(tile, at, m, n, columns, h.data());
    }
    mirror_tile(at, m, n, columns, h.data());
  });
}

bool factor_upper(std::span<double> a, std::int64_t n, ThreadPool& pool) {
  require(std::ssize(a) == n * n, "factor: expected ", n, " squared values, found ", a.size());
  one_thread_each();
  std::vector<double> diagonal(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    diagonal[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>(i * n + i)];
  const std::int64_t steps = (n + kFactorTile - 1) / kFactorTile;
  for (std::int64_t step = steps - 1; step >= 0; --step) {
    const std::int64_t first = step * kFactorTile;
    const std::int64_t count = std::min(kFactorTile, n - first);
    double* corner = a.data() + first * n + first;
    if (!factor_tile(corner, count, n, diagonal.data() + first)) return false;
    const std::int64_t above = (first + kUpdateTile - 1) / kUpdateTile;
    pool.run(above, [&](std::int64_t task, int) {
      const std::int64_t row = task * kUpdateTile;
      const std::int64_t rows = std::min(kUpdateTile, first - row);
      cblas_dtrsm(CblasRowMajor, CblasRight, CblasUpper, CblasTrans, CblasNonUnit, size(rows),
                  size(count), 1.0, corner, size(n), a.data() + row * n + first, size(n));
    });
    subtract_products(a.data(), n, first, count, pool);
  }
  return true;
}

bool solve_positive(std::span<double> a, std::span<double> x) {
  one_thread_each();
  const blasint n = size(std::ssize(x));
  blasint info = 0;
  dpotrf_("L", &n, a.data(), &n, &info);
  if (info != 0) return false;
  // The lower factor by columns is the upper one by rows: U^T U x = b.
  cblas_dtrsv(CblasRowMajor, CblasUpper, CblasTrans, CblasNonUnit, n, a.data(), n, x.data(), 1);
  cblas_dtrsv(CblasRowMajor, CblasUpper, CblasNoTrans, CblasNonUnit, n, a.data(), n, x.data(), 1);
  return true;
}

void add_product(Block<const float> a, Block<const float> b, Block<float> c) {
  one_thread_each();
  if (a.columns == 0) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size(c.rows), size(c.columns),
              size(a.columns), 1.0f, a.data, size(a.stride), b.data, size(b.stride), 1.0f, c.data,
              size(c.stride));
}

void add_product(Block<const double> a, Block<const double> b, Block<double> c) {
  one_thread_each();
  if (a.columns == 0) return;
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size(c.rows), size(c.columns),
              size(a.columns), 1.0, a.data, size(a.stride), b.data, size(b.stride), 1.0, c.data,
              size(c.stride));
}

}  // namespace leq
