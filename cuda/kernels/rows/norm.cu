// Norms of rows. On one multiprocessor a row takes more time for instructions than for its bytes,
// so that several blocks share a row if they can: each computes the sums of the whole row, and then
// its own columns.
#include "cuda/kernels/rows/norm.cuh"

#include <algorithm>

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kMaxBlocks = 1056;  // 8 on each of 132 multiprocessors

// A block has `columns` of row blockIdx.x. If `whole`, it has the whole row and keeps it in shared
// memory, for encodings that depend on all of it. `out` may then alias x: a thread writes the quads
// that it reads, after all lanes have been read.
template <bool whole>
__global__ void __launch_bounds__(kNormThreads, 4)
    norm_rows(const LEQ_GRID_CONSTANT NormArguments a, int columns) {
  LEQ_BOUNDS(kNormThreads);
  ptx::let_successor_start();
  const int width = static_cast<int>(a.width), begin = static_cast<int>(blockIdx.y) * columns;
  const int last = min(begin + columns, static_cast<int>(padded_columns(width)));
  int k = begin + static_cast<int>(threadIdx.x) * 4;
  NormFactors factors(a, k);
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x;
  const float* const from = a.x.values + token * a.x.stride;
  Quad x = load_quad(from, k, width);
  const Moments m = moments(LaneColumns(from, width), a);
  for (; k < last; k += kNormColumns) {
    const Quad y = normed(x, factors, m, a, k);
    if (k + kNormColumns < last) {
      x = load_quad(from, k + kNormColumns, width);
      factors = NormFactors(a, k + kNormColumns);
    }
    if constexpr (whole) {
      LEQ_DYNAMIC_SHARED(float, row);
      *reinterpret_cast<Quad*>(row + k) = y;
      if (a.out.values != nullptr) store_quad(a.out.values + token * a.out.stride, k, width, y);
    } else {
      store_normed(a, token, k, y);
    }
  }
  if constexpr (whole) {
    LEQ_DYNAMIC_SHARED(float, row);
    finish_row(row, token, a.width, a.quantize);
  }
}

}  // namespace

void launch_norm(const NormArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  const std::int64_t padded = padded_columns(a.width), units = div_up(padded, kNormColumns);
  if (!has_own_groups(a.quantize) || a.out.values == a.x.values) {
    return rt::run(stream,
                   {"norm_rows", rt::grid(a.tokens), kNormThreads, row_bytes(a), rt::Start::early},
                   norm_rows<true>, a, static_cast<int>(units * kNormColumns));
  }
  const std::int64_t parts = std::clamp(kMaxBlocks / a.tokens, std::int64_t{1}, units);
  const std::int64_t columns = div_up(units, parts) * kNormColumns;
  const dim3 blocks = rt::grid(a.tokens, div_up(padded, columns));
  rt::run(stream, {"norm_rows", blocks, kNormThreads, 0, rt::Start::early}, norm_rows<false>, a,
          static_cast<int>(columns));
}

}  // namespace leq::LEQ_GPU
