#include "quantize/descent.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "quantize/code_errors.h"
#include "quantize/dense.h"

namespace leq {
namespace {

constexpr std::int64_t kTaskRows = 128;
constexpr std::int64_t kBlockColumns = 128;  // a block of H is 64 KB
// A move of one helps where |g / (H s)| > 0.5; f32 sums of g are off by far less than this margin.
constexpr float kLeastMove = 0.501f;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Sweep {
  const MethodInput& input;
  const Ranges& ranges;
  const Hessian& hessian;
  std::span<std::int16_t> codes;  // [N][K]
};

// Codes of one row in one block of columns; `errors` [K] is the row's w - q, `gradient` the
// block's part of H errors. Both follow the moves.
std::int64_t sweep_row(const Sweep& sweep, std::int64_t row, std::int64_t block, std::int64_t width,
                       float* errors, float* gradient) {
  const std::int64_t columns = sweep.input.columns;
  std::int64_t moves = 0;
  for (std::int64_t j = 0; j < width; ++j) {
    const std::int64_t column = block + j;
    const std::size_t range = sweep.ranges.index(row, column);
    const float* h = sweep.hessian.values.data() + column * columns;
    const float step = gradient[j] / (h[column] * sweep.ranges.divisors[range]);
    if (!(std::fabs(step) > kLeastMove)) continue;
    std::int16_t& code = sweep.codes[at(row * columns + column)];
    const CodeLimits limits = sweep.ranges.limits;
    const int moved = nearest_code(step, 1.0f, 0, {limits.low - code, limits.high - code});
    if (moved == 0) continue;
    code = static_cast<std::int16_t>(code + moved);
    const float change = sweep.ranges.scales[range] * static_cast<float>(moved);
    errors[column] -= change;
    for (std::int64_t k = 0; k < width; ++k) gradient[k] -= change * h[block + k];
    ++moves;
  }
  return moves;
}

std::int64_t sweep_rows(const Sweep& sweep, std::int64_t first, std::int64_t count, int passes) {
  const std::int64_t columns = sweep.input.columns;
  std::vector<float> errors(at(count * columns)), gradient(at(count * kBlockColumns));
  std::int64_t moves = 0;
  for (int pass = 0; pass < passes; ++pass) {
    code_errors(sweep.input, sweep.ranges, sweep.codes, first, count, errors);
    const std::int64_t before = moves;
    for (std::int64_t block = 0; block < columns; block += kBlockColumns) {
      const std::int64_t width = std::min(kBlockColumns, columns - block);
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      add_product(Block<const float>{errors.data(), count, columns, columns},
                  Block<const float>{sweep.hessian.values.data() + block, columns, width, columns},
                  Block<float>{gradient.data(), count, width, kBlockColumns});
      for (std::int64_t row = 0; row < count; ++row) {
        moves += sweep_row(sweep, first + row, block, width, errors.data() + row * columns,
                           gradient.data() + row * kBlockColumns);
      }
    }
    if (moves == before) break;
  }
  return moves;
}

}  // namespace

std::int64_t descend(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                     int passes, std::span<std::int16_t> codes, ThreadPool& pool) {
  const Sweep sweep{input, ranges, hessian, codes};
  std::atomic<std::int64_t> moves = 0;
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kTaskRows;
    moves += sweep_rows(sweep, first, std::min(kTaskRows, input.rows - first), passes);
  });
  return moves;
}

}  // namespace leq
