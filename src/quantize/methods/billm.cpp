// Method billm (Huang et al. 2024, "braq"): one sign and one more bit per weight, in blocks of 128
// columns. Salient columns are binarized twice; the others are split by magnitude in two parts. The
// error of a block is compensated in later columns. For research only: at 3.1 bits per weight it is
// less accurate than 3-bit codes and not smaller.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/half.h"
#include "quantize/linear_algebra/matrix.h"
#include "quantize/methods/method.h"

namespace leq {
namespace {

constexpr std::int64_t kBlock = 128;  // columns that share eight f16 parameters
constexpr std::int64_t kNumbers = 8;
constexpr std::int64_t kTaskRows = 64;   // rows with one matrix product for feedback
constexpr std::size_t kMaxSalient = 49;  // limit of salient columns per block
constexpr int kThresholds = 81;          // quantiles 0.10, 0.11 ... 0.90 to try
constexpr double kMaxDamping = 1.0;

// Damped H = V V^T with V upper triangular. The output error of a row with weight errors d is sum_i
// (sum_{j<=i} d_j V_ji)^2, so that term i depends only on the errors of columns 0 ... i.
struct Feedback {
  std::int64_t columns = 0;
  std::vector<double> v;  // [K][K]
  double at(std::int64_t i, std::int64_t j) const {
    return v[static_cast<std::size_t>(i * columns + j)];
  }
};

// Factors damped H, with 1 on the diagonal for an input that was always 0. Damping grows tenfold
// until H is positive definite. If this fails only the diagonal is used, that is, no feedback.
Feedback make_feedback(const MethodInput& input, std::string& note) {
  const std::int64_t n = input.columns;
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  require(input.statistics != nullptr && input.statistics->columns == n &&
              std::ssize(input.statistics->hessian) == n * n,
          input.name, ": method billm needs X^T X of ", n,
          " input columns; calibrate, or use method nf4");
  double damping = input.options.damping;
  while (damping <= kMaxDamping) {
    LowerMatrix l(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double* from = input.statistics->hessian.data() + i * n;
      for (std::int64_t j = 0; j < i; ++j) l.at(i, j) = from[j];
      l.at(i, i) = from[i] == 0 ? 1 : from[i] * (1 + damping);
    }
    if (factor_lower(l, pool)) {
      Feedback feedback{n, std::vector<double>(static_cast<std::size_t>(n * n))};
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j <= i; ++j)
          feedback.v[static_cast<std::size_t>(j * n + i)] = l.at(i, j);
      }
      return feedback;
    }
    note = "X^T X is nearly singular: damping raised";
    damping = damping <= 0 ? 1e-3 : 10 * damping;
  }
  note = "X^T X has no factor: rounded without feedback";
  Feedback feedback{n, std::vector<double>(static_cast<std::size_t>(n * n))};
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = input.statistics->hessian[static_cast<std::size_t>(i * n + i)];
    feedback.v[static_cast<std::size_t>(i * n + i)] = value > 0 ? std::sqrt(value) : 1;
  }
  return feedback;
}

// Mean m and mean absolute deviation a of the values x: m + a sign(x - m) is nearly the best fit.
struct Binary {
  double mean = 0, size = 0;

  explicit Binary(std::span<const double> x) {
    if (x.empty()) return;
    const auto count = static_cast<double>(x.size());
    mean = std::accumulate(x.begin(), x.end(), 0.0) / count;
    for (const double value : x) size += std::fabs(value - mean);
    size /= count;
  }
  double value(double x) const { return x >= mean ? mean + size : mean - size; }
  double error(std::span<const double> x) const {
    double total = 0;
    for (const double number : x) total += (number - value(number)) * (number - value(number));
    return total;
  }
};

std::vector<double> residual(std::span<const double> x, const Binary& first) {
  std::vector<double> rest;
  for (const double value : x) rest.push_back(value - first.value(value));
  return rest;
}

// Squared error of binarizing salient weights twice.
double salient_error(std::span<const double> x) {
  const auto rest = residual(x, Binary(x));
  return Binary(rest).error(rest);
}

// A block of columns and its parameters; x contains the compensation for errors of earlier blocks.
struct BlockWork {
  std::int64_t rows = 0, first = 0, count = 0;  // columns [first, first + count)
  std::vector<double> x;                        // [N][count] target values
  std::vector<std::size_t> order = {};          // columns of the block by descending salience
  std::size_t salient = 0;                      // number of salient columns, first in `order`
  double threshold = 0;  // weights in other columns with |x| above this are large

  std::span<const double> row(std::int64_t r) const {
    return std::span(x).subspan(static_cast<std::size_t>(r * count),
                                static_cast<std::size_t>(count));
  }
  // Values of row r in the columns order[from] ... order[to - 1].
  std::vector<double> pick(std::int64_t r, std::size_t from, std::size_t to) const {
    std::vector<double> picked;
    for (std::size_t i = from; i < to; ++i) picked.push_back(row(r)[order[i]]);
    return picked;
  }
};

// Index of the choice with the least sum over the rows of `errors` [N][choices].
std::size_t least_column(std::span<const double> errors, std::size_t choices) {
  std::vector<double> totals(choices);
  for (std::size_t i = 0; i < errors.size(); ++i) totals[i % choices] += errors[i];
  return static_cast<std::size_t>(std::min_element(totals.begin(), totals.end()) - totals.begin());
}

// Chooses the number of salient columns (1 to 49) with the least error if the other columns are
// binarized as one part. The salience of a column is the sum over rows of x^2 V_kk^2.
void choose_salient(BlockWork& work, const Feedback& feedback, ThreadPool* pool) {
  std::vector<double> salience(static_cast<std::size_t>(work.count));
  for (std::size_t i = 0; i < work.x.size(); ++i) {
    const std::size_t k = i % salience.size();
    const std::int64_t column = work.first + static_cast<std::int64_t>(k);
    const double weighted = work.x[i] * feedback.at(column, column);
    salience[k] += weighted * weighted;
  }
  work.order.resize(salience.size());
  std::iota(work.order.begin(), work.order.end(), std::size_t{0});
  std::stable_sort(work.order.begin(), work.order.end(),
                   [&](std::size_t a, std::size_t b) { return salience[a] > salience[b]; });
  const std::size_t choices = std::min(kMaxSalient, salience.size() - 1);
  if (choices == 0) return;
  std::vector<double> errors(static_cast<std::size_t>(work.rows) * choices);
  for_rows(pool, work.rows, [&](std::int64_t row) {
    const std::vector<double> sorted = work.pick(row, 0, work.order.size());
    for (std::size_t i = 0; i < choices; ++i) {
      const auto strong = std::span(sorted).first(i + 1), weak = std::span(sorted).subspan(i + 1);
      errors[static_cast<std::size_t>(row) * choices + i] =
          salient_error(strong) + Binary(weak).error(weak);
    }
  });
  work.salient = least_column(errors, choices) + 1;
}

struct TwoParts {
  std::vector<double> small, large;
  TwoParts(std::span<const double> x, double threshold) {
    for (const double value : x) (std::fabs(value) > threshold ? large : small).push_back(value);
  }
};

// Chooses the threshold between small and large weights in the columns that are not salient, as the
// one with the least error among 81 quantiles.
void choose_threshold(BlockWork& work, ThreadPool* pool) {
  std::vector<double> sizes;
  for (std::int64_t row = 0; row < work.rows; ++row) {
    for (const double x : work.pick(row, work.salient, work.order.size())) {
      sizes.push_back(std::fabs(x));
    }
  }
  std::sort(sizes.begin(), sizes.end());
  std::vector<double> thresholds;
  for (int i = 0; i < kThresholds; ++i) {
    const double share = 0.1 + 0.01 * i;
    thresholds.push_back(
        sizes[static_cast<std::size_t>(share * static_cast<double>(sizes.size() - 1))]);
  }
  std::vector<double> errors(static_cast<std::size_t>(work.rows) * thresholds.size());
  for_rows(pool, work.rows, [&](std::int64_t row) {
    const auto weak = work.pick(row, work.salient, work.order.size());
    for (std::size_t i = 0; i < thresholds.size(); ++i) {
      const TwoParts parts(weak, thresholds[i]);
      errors[static_cast<std::size_t>(row) * thresholds.size() + i] =
          Binary(parts.small).error(parts.small) + Binary(parts.large).error(parts.large);
    }
  });
  work.threshold = thresholds[least_column(errors, thresholds.size())];
}

float half(double value) { return f16_to_f32(f32_to_f16(static_cast<float>(value))); }

// Codes of one row of a block, with the row's eight parameters rounded to f16.
struct RowCodes {
  float numbers[kNumbers] = {};
  std::vector<std::int16_t> codes;
  std::vector<double> values;  // values that the codes stand for

  RowCodes(const BlockWork& work, std::int64_t row)
      : codes(work.order.size()), values(work.order.size()) {
    const auto strong = work.pick(row, 0, work.salient);
    const TwoParts parts(work.pick(row, work.salient, work.order.size()), work.threshold);
    const Binary first = keep(0, Binary(strong));
    const Binary levels[] = {first, keep(1, Binary(residual(strong, first))),
                             keep(2, Binary(parts.small)), keep(3, Binary(parts.large))};
    for (std::size_t i = 0; i < work.order.size(); ++i) {
      const std::size_t k = work.order[i];
      const double x = work.row(row)[k];
      const double rest = x - levels[0].value(x);
      const bool salient = i<work.salient, large = std::fabs(x)> work.threshold;
      const bool second = salient ? rest >= levels[1].mean : large;
      const Binary& main = levels[salient ? 0 : large ? 3 : 2];
      codes[k] = static_cast<std::int16_t>((x >= main.mean ? 1 : 0) + (second ? 2 : 0));
      values[k] = main.value(x) + (salient ? levels[1].value(rest) : 0);
    }
  }

 private:
  Binary keep(int part, Binary binary) {
    binary.mean = static_cast<double>(numbers[2 * part] = half(binary.mean));
    binary.size = static_cast<double>(numbers[2 * part + 1] = half(binary.size));
    return binary;
  }
};

// Errors d = W - Wq [N][K] of the blocks that are finished.
using Errors = std::vector<double>;

// Target values of a block. With the errors d of earlier blocks and no errors in later ones, every
// e_i = sum_{j<=i} d_j V_ji in the block would be 0 for these values.
BlockWork start_block(const MethodInput& input, const Feedback& feedback, const Errors& errors,
                      std::int64_t first) {
  const std::int64_t columns = input.columns, count = std::min(kBlock, columns - first);
  BlockWork work{input.rows, first, count, {}};
  work.x.resize(static_cast<std::size_t>(input.rows * count));
  for_rows(input.pool, (input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task) {
    const std::int64_t begin = task * kTaskRows, end = std::min(begin + kTaskRows, input.rows);
    double* const rhs = work.x.data() + begin * count;  // [rows][count] sums of feedback, later x
    add_product({errors.data() + begin * columns, end - begin, first, columns},
                {feedback.v.data() + first, first, count, columns},
                Block<double>{rhs, end - begin, count, count});
    for (std::int64_t row = begin; row < end; ++row) {
      double* const mine = work.x.data() + row * count;
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < i; ++j) mine[i] -= mine[j] * feedback.at(first + j, first + i);
        mine[i] /= feedback.at(first + i, first + i);
      }
      const float* const weight = input.weight.data() + row * columns + first;
      for (std::int64_t i = 0; i < count; ++i) mine[i] += static_cast<double>(weight[i]);
    }
  });
  return work;
}

void store_block(const MethodInput& input, const BlockWork& work, ChosenCodes& chosen,
                 Errors& errors) {
  const std::int64_t groups = (input.columns + kBlock - 1) / kBlock;
  for (std::size_t i = 0; i < work.salient; ++i) {
    chosen.zeros[static_cast<std::size_t>(work.first) + work.order[i]] = 1;
  }
  for_rows(input.pool, input.rows, [&](std::int64_t row) {
    const RowCodes found(work, row);
    const std::int64_t at = row * input.columns + work.first;
    std::copy(found.codes.begin(), found.codes.end(), chosen.codes.begin() + at);
    std::copy_n(found.numbers, kNumbers,
                chosen.scales.begin() + (row * groups + work.first / kBlock) * kNumbers);
    for (std::size_t i = 0; i < found.values.size(); ++i) {
      const auto to = static_cast<std::size_t>(at) + i;
      errors[to] = static_cast<double>(input.weight[to]) - found.values[i];
    }
  });
}

MethodResult choose_billm(const MethodInput& input) {
  require_finite(input);
  MethodResult result;
  const Feedback feedback = make_feedback(input, result.note);
  const std::int64_t groups = (input.columns + kBlock - 1) / kBlock;
  ChosenCodes& chosen = result.codes;
  chosen.codes.resize(input.weight.size());
  chosen.zeros.resize(static_cast<std::size_t>(input.columns));
  chosen.scales.resize(static_cast<std::size_t>(input.rows * groups * kNumbers));
  Errors errors(input.weight.size());
  for (std::int64_t first = 0; first < input.columns; first += kBlock) {
    BlockWork work = start_block(input, feedback, errors, first);
    choose_salient(work, feedback, input.pool);
    choose_threshold(work, input.pool);
    store_block(input, work, chosen, errors);
  }
  return result;
}

bool supports_billm(const QuantScheme& scheme) { return scheme.kind == CodeKind::b1; }

}  // namespace

QuantMethod billm_method() {
  return {.name = "billm",
          .summary = "research: one or two signs a weight with error feedback (type b1)",
          .needs = Needs::hessian,
          .supports = supports_billm,
          .choose = choose_billm,
          .own_type = "b1"};
}

}  // namespace leq
