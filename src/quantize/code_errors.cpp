#include "quantize/code_errors.h"

#include <algorithm>

#include "quantize/dense.h"

namespace leq {
namespace {

constexpr std::int64_t kTaskRows = 128;
constexpr std::int64_t kBlockColumns = 512;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

void code_errors(const MethodInput& input, const Ranges& ranges,
                 std::span<const std::int16_t> codes, std::int64_t first, std::int64_t count,
                 std::span<float> out) {
  const std::int64_t columns = input.columns;
  for (std::int64_t row = 0; row < count; ++row) {
    const float* weight = input.weight.data() + (first + row) * columns;
    const std::int16_t* code = codes.data() + (first + row) * columns;
    float* to = out.data() + row * columns;
    for (std::int64_t start = 0; start < columns; start += ranges.group) {
      const std::size_t range = ranges.index(first + row, start);
      const int zero = ranges.zero(range);
      const float scale = ranges.scales[range];
      const std::int64_t end = std::min(start + ranges.group, columns);
      for (std::int64_t k = start; k < end; ++k)
        to[k] = weight[k] - scale * static_cast<float>(code[k] - zero);
    }
  }
}

std::vector<double> row_losses(const MethodInput& input, const Ranges& ranges,
                               std::span<const std::int16_t> codes, const Hessian& hessian,
                               ThreadPool& pool) {
  const std::int64_t columns = input.columns;
  std::vector<double> losses(at(input.rows));
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kTaskRows;
    const std::int64_t count = std::min(kTaskRows, input.rows - first);
    std::vector<float> errors(at(count * columns)), product(at(count * kBlockColumns));
    code_errors(input, ranges, codes, first, count, errors);
    for (std::int64_t block = 0; block < columns; block += kBlockColumns) {
      const std::int64_t width = std::min(kBlockColumns, columns - block);
      std::fill(product.begin(), product.end(), 0.0f);
      add_product(Block<const float>{errors.data(), count, columns, columns},
                  Block<const float>{hessian.values.data() + block, columns, width, columns},
                  Block<float>{product.data(), count, width, kBlockColumns});
      for (std::int64_t row = 0; row < count; ++row) {
        double sum = 0;
        for (std::int64_t k = 0; k < width; ++k) {
          sum += static_cast<double>(errors[at(row * columns + block + k)]) *
                 static_cast<double>(product[at(row * kBlockColumns + k)]);
        }
        losses[at(first + row)] += sum;
      }
    }
  });
  return losses;
}

}  // namespace leq
