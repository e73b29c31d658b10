#include "quantize/methods/code_errors.h"

#include <algorithm>

#include "quantize/linear_algebra/sliced_matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

constexpr std::int64_t kLanes = kPanelLanes<float>;
constexpr std::int64_t kTaskRows = kTaskPanels * kLanes;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// As H is symmetric, the products of a block's columns with columns before the block count twice.
void add_losses(const LanePanels<float>& errors, std::int64_t panels, const Hessian& hessian,
                std::span<double> losses) {
  LanePanels<float> product(panels, kBlockColumns);
  std::vector<double> twice(losses.size());
  for (std::int64_t block = 0; block < hessian.columns; block += kBlockColumns) {
    const std::int64_t width = std::min(kBlockColumns, hessian.columns - block);
    const auto add = [&](IndexRange depth, std::vector<double>& sums) {
      for (std::int64_t panel = 0; panel < panels; ++panel)
        std::fill_n(product.at(panel, 0), width * kLanes, 0.0f);
      add_lane_product(hessian.values, LaneProduct<float>{.depth = depth,
                                                          .columns = {block, block + width},
                                                          .b = errors,
                                                          .c = product,
                                                          .panels = panels});
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        tile_kernels().add_dots(errors.at(panel, block), product.at(panel, 0), width,
                                &sums[at(panel * kLanes)]);
      }
    };
    std::vector<double> once(losses.size());
    add({0, block}, twice);
    add({block, block + width}, once);
    for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += once[i];
  }
  for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += 2 * twice[i];
}

// `errors(first, count)` returns rows in lanes.
template <class Errors>
std::vector<double> losses_of_rows(std::int64_t rows, const Hessian& hessian, ThreadPool& pool,
                                   const Errors& errors) {
  std::vector<double> losses(at(rows));
  pool.run((rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kTaskRows, count = std::min(kTaskRows, rows - first);
    const std::int64_t panels = (count + kLanes - 1) / kLanes;
    std::vector<double> lanes(at(panels * kLanes));
    add_losses(errors(first, count), panels, hessian, lanes);
    std::copy_n(lanes.begin(), count, losses.begin() + first);
  });
  return losses;
}

}  // namespace

LanePanels<float> code_errors(const MethodInput& input, const Ranges& ranges,
                              std::span<const std::int16_t> codes, std::int64_t first,
                              std::int64_t count) {
  const std::int64_t columns = input.columns;
  LanePanels<float> errors((count + kLanes - 1) / kLanes, columns);
  std::vector<float> rows(at(kLanes * columns));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = first + i;
    const float* weight = input.weight.data() + row * columns;
    const std::int16_t* code = codes.data() + row * columns;
    float* to = rows.data() + i % kLanes * columns;
    for (std::int64_t start = 0; start < columns; start += ranges.group) {
      const std::size_t range = ranges.index(row, start);
      const int zero = ranges.zero(range);
      const float scale = ranges.scales[range];
      const std::int64_t end = std::min(start + ranges.group, columns);
      for (std::int64_t k = start; k < end; ++k)
        to[k] = weight[k] - scale * static_cast<float>(code[k] - zero);
    }
    if (i % kLanes == kLanes - 1 || i == count - 1) {
      rows_to_lanes(rows.data(), columns, i % kLanes + 1, columns, errors.at(i / kLanes, 0),
                    kLanes);
    }
  }
  return errors;
}

std::vector<double> row_energies(std::span<const float> rows, const Hessian& hessian,
                                 ThreadPool& pool) {
  const std::int64_t columns = hessian.columns;
  return losses_of_rows(
      std::ssize(rows) / columns, hessian, pool, [&](std::int64_t first, std::int64_t count) {
        LanePanels<float> lanes((count + kLanes - 1) / kLanes, columns);
        for (std::int64_t row = 0; row < count; row += kLanes) {
          rows_to_lanes(rows.data() + (first + row) * columns, columns,
                        std::min(kLanes, count - row), columns, lanes.at(row / kLanes, 0), kLanes);
        }
        return lanes;
      });
}

std::vector<double> row_losses(const MethodInput& input, const Ranges& ranges,
                               std::span<const std::int16_t> codes, const Hessian& hessian,
                               ThreadPool& pool) {
  return losses_of_rows(input.rows, hessian, pool, [&](std::int64_t first, std::int64_t count) {
    return code_errors(input, ranges, codes, first, count);
  });
}

}  // namespace leq
