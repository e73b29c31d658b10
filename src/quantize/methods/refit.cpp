#include "quantize/methods/refit.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "quantize/linear_algebra/dense.h"
#include "quantize/linear_algebra/lanes.h"
#include "quantize/linear_algebra/sliced_matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "quantize/methods/code_errors.h"

namespace leq {
namespace {

constexpr std::int64_t kLanes = kPanelLanes<float>;
constexpr std::int64_t kSystemValues = std::int64_t{1} << 22;  // limit for all rows of a task
constexpr double kRidge = 1e-6;
constexpr double kLeastGain = 1e-5;  // relative; smaller gains are errors of f32 sums

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One least-squares system A x = b per row, for the changes x of its scales; b_g = c_g H (w - q).
struct Systems {
  std::int64_t groups = 0;
  std::vector<double> matrix;  // [rows][G][G], both triangles
  std::vector<double> right;   // [rows][G]
};

class Refit {
 public:
  Refit(const MethodInput& input, std::span<const std::int16_t> codes, const Hessian& hessian,
        Ranges& ranges)
      : input_(input), codes_(codes), hessian_(hessian), ranges_(ranges) {}

  std::int64_t task_rows() const {
    return std::clamp<std::int64_t>(kSystemValues / (ranges_.per_row * ranges_.per_row), 8, kLanes);
  }

  // Returns the number of rows that got new scales.
  std::int64_t run(std::int64_t first, std::int64_t count) {
    Systems systems = build(first, count);
    std::int64_t taken = 0;
    for (std::int64_t row = 0; row < count; ++row) taken += take(systems, first + row, row) ? 1 : 0;
    return taken;
  }

 private:
  // Codes minus their zero points, [K] columns with rows in lanes.
  LanePanels<float> levels(std::int64_t first, std::int64_t count) const {
    const std::int64_t columns = input_.columns;
    std::vector<float> rows(at(count * columns));
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::size_t range = ranges_.index(first + row, k);
        rows[at(row * columns + k)] =
            static_cast<float>(codes_[at((first + row) * columns + k)] - ranges_.zero(range));
      }
    }
    LanePanels<float> lanes(1, columns);
    rows_to_lanes(rows.data(), columns, count, columns, lanes.at(0, 0), kLanes);
    return lanes;
  }

  Systems build(std::int64_t first, std::int64_t count) const {
    const std::int64_t columns = input_.columns, groups = ranges_.per_row;
    Systems systems{groups, std::vector<double>(at(count * groups * groups)),
                    std::vector<double>(at(count * groups))};
    const LanePanels<float> level = levels(first, count);
    const LanePanels<float> errors = code_errors(input_, ranges_, codes_, first, count);
    LanePanels<float> product(1, (columns + kTileRows - 1) / kTileRows * kTileRows);
    const auto group = [&](std::int64_t g) {
      return IndexRange{g * ranges_.group, std::min(columns, (g + 1) * ranges_.group)};
    };
    for (std::int64_t g = 0; g < groups; ++g) {
      std::fill_n(product.at(0, 0), columns * kLanes, 0.0f);
      add_lane_product(hessian_.values, LaneProduct<float>{.depth = group(g),
                                                           .columns = {0, columns},
                                                           .b = level,
                                                           .b_first = 0,
                                                           .c = product,
                                                           .panels = 1});
      const auto dots = [&](const LanePanels<float>& with, IndexRange over) {
        std::array<double, at(kLanes)> sums = {};
        tile_kernels().add_dots(product.at(0, over.first), with.at(0, over.first),
                                over.last - over.first, sums.data());
        return sums;
      };
      const auto right = dots(errors, {0, columns});
      for (std::int64_t row = 0; row < count; ++row)
        systems.right[at(row * groups + g)] = right[at(row)];
      for (std::int64_t h = g; h < groups; ++h) {
        const auto values = dots(level, group(h));
        for (std::int64_t row = 0; row < count; ++row) {
          double* matrix = systems.matrix.data() + row * groups * groups;
          matrix[g * groups + h] = matrix[h * groups + g] = values[at(row)];
        }
      }
    }
    return systems;
  }

  // Changes of the scales [G] after the new scales were rounded to storable values.
  std::vector<double> storable_changes(std::int64_t row, std::span<const double> wanted) const {
    std::vector<double> changes(wanted.size());
    for (std::size_t g = 0; g < wanted.size(); ++g) {
      const float old = ranges_.scales[at(row * ranges_.per_row) + g];
      const float found = stored_scale(static_cast<float>(static_cast<double>(old) + wanted[g]),
                                       ranges_.scale_mul, input_.scheme);
      if (found == 0 || std::signbit(found) != std::signbit(old)) continue;
      changes[g] = static_cast<double>(found) - static_cast<double>(old);
    }
    return changes;
  }

  bool take(const Systems& systems, std::int64_t row, std::int64_t local) {
    const std::int64_t groups = systems.groups;
    const double* matrix = systems.matrix.data() + local * groups * groups;
    std::vector<double> solved(matrix, matrix + groups * groups);
    std::vector<double> wanted(systems.right.begin() + local * groups,
                               systems.right.begin() + (local + 1) * groups);
    for (std::int64_t g = 0; g < groups; ++g) {
      double& diagonal = solved[at(g * groups + g)];
      diagonal = diagonal > 0 ? diagonal * (1 + kRidge) : 1.0;  // a group of zeros keeps its scale
    }
    if (!solve_positive(solved, wanted)) return false;
    const std::vector<double> changes = storable_changes(row, wanted);
    if (!lowers_loss(matrix, systems.right.data() + local * groups, changes)) return false;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::size_t range = at(row * groups + g);
      if (changes[at(g)] == 0) continue;
      ranges_.scales[range] =
          static_cast<float>(static_cast<double>(ranges_.scales[range]) + changes[at(g)]);
      ranges_.divisors[range] = ranges_.scales[range];
    }
    return true;
  }

  // Whether the loss decreases; its change is x A x^T - 2 r x.
  static bool lowers_loss(const double* matrix, const double* right,
                          const std::vector<double>& changes) {
    const std::int64_t groups = std::ssize(changes);
    double square = 0, linear = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      double sum = 0;
      for (std::int64_t h = 0; h < groups; ++h) sum += matrix[g * groups + h] * changes[at(h)];
      square += changes[at(g)] * sum;
      linear += 2 * right[g] * changes[at(g)];
    }
    return square - linear < -kLeastGain * (std::fabs(square) + std::fabs(linear));
  }

  const MethodInput& input_;
  std::span<const std::int16_t> codes_;
  const Hessian& hessian_;
  Ranges& ranges_;
};

}  // namespace

float stored_scale(float scale, float scale_mul, const QuantScheme& scheme) {
  if (scheme.scaling != Scaling::group) return std::isfinite(scale) ? scale : 0.0f;
  const float ratio = scale / scale_mul;
  if (!(std::fabs(ratio) <= 65504.0f)) return 0.0f;
  return f16_to_f32(f32_to_f16(ratio)) * scale_mul;
}

std::int64_t refit_scales(const MethodInput& input, std::span<const std::int16_t> codes,
                          const Hessian& hessian, Ranges& ranges, ThreadPool& pool) {
  if (input.scheme.scaling == Scaling::tensor) return 0;
  Refit refit(input, codes, hessian, ranges);
  const std::int64_t task_rows = refit.task_rows();
  std::atomic<std::int64_t> taken = 0;
  pool.run((input.rows + task_rows - 1) / task_rows, [&](std::int64_t task, int) {
    const std::int64_t first = task * task_rows;
    taken += refit.run(first, std::min(task_rows, input.rows - first));
  });
  return taken;
}

}  // namespace leq
