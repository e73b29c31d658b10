#include "quantize/rewrites/rotate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/linear_sites.h"
#include "model/rotation.h"
#include "quantize/rewrites/fold.h"

namespace leq {
namespace {

// A matrix during a rewrite; a bias is a matrix of one column.
struct Doubles {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;  // [rows][columns]

  double* row(std::size_t r) { return values.data() + r * columns; }
};

// Q = diag(factors) H, repeated along the diagonal for sizes above `block`. Each factor is
// +1/sqrt(block) or -1/sqrt(block).
struct Rotator {
  std::vector<double> factors;
  std::size_t block = 0;
};

Rotator rotator(std::uint64_t seed, RotationSpace space, std::int64_t size) {
  const std::int64_t block = hadamard_block(size);
  Rotator by = {{}, static_cast<std::size_t>(block)};
  for (const float sign : rotation_signs(seed, space, size)) {
    by.factors.push_back(double{sign} / std::sqrt(static_cast<double>(block)));
  }
  return by;
}

// x <- H x in each block of `block` pieces of `length` numbers, by sums and differences of pieces
// at distances 1, 2, 4, ...
void hadamard(std::span<double> x, std::size_t length, std::size_t block) {
  for (std::size_t distance = 1; distance < block; distance *= 2) {
    const std::size_t run = distance * length;
    for (std::size_t first = 0; first < x.size(); first += 2 * run) {
      double* a = x.data() + first;
      double* b = a + run;
      for (std::size_t k = 0; k < run; ++k) {
        const double sum = a[k] + b[k], difference = a[k] - b[k];
        a[k] = sum;
        b[k] = difference;
      }
    }
  }
}

// W <- W Q: rotates every row, as the residual stream is rotated.
void rotate_columns(Doubles& w, const Rotator& by) {
  const std::size_t period = by.factors.size();
  for (std::size_t first = 0; first < w.values.size(); first += period) {
    for (std::size_t k = 0; k < period; ++k) w.values[first + k] *= by.factors[k];
    hadamard(std::span(w.values).subspan(first, period), 1, by.block);
  }
}

// W <- Q^T W: rotates the outputs of the linear.
void rotate_rows(Doubles& w, const Rotator& by) {
  for (std::size_t r = 0; r < w.rows; ++r) {
    const double factor = by.factors[r % by.factors.size()];
    for (std::size_t k = 0; k < w.columns; ++k) w.row(r)[k] *= factor;
  }
  hadamard(w.values, w.columns, by.block);
}

// Subtracts each column's mean over the rows, so that the linear's output vectors have mean 0.
void centre_rows(Doubles& w) {
  std::vector<double> mean(w.columns);
  for (std::size_t i = 0; i < w.values.size(); ++i) mean[i % w.columns] += w.values[i];
  for (double& m : mean) m /= static_cast<double>(w.rows);
  for (std::size_t i = 0; i < w.values.size(); ++i) w.values[i] -= mean[i % w.columns];
}

class BlockRotation {
 public:
  BlockRotation(BlockTensors& block, const ModelConfig& config, std::int64_t layer,
                const Rotation& rotation)
      : block_(block),
        config_(config),
        sites_(linear_sites(config, layer)),
        stream_(rotator(rotation.seed, RotationSpace::residual, config.width)),
        heads_(rotator(rotation.seed, RotationSpace::head_values, config.head_dim)) {}

  void run() {
    for (const LinearSite& site : sites_) {
      for (const LinearSpec& weight : site.weights) {
        if (site.norm) {
          reading(weight.name, site.norm->name);
        } else {
          writing(weight.name);
        }
      }
      if (site.norm) neutral(site.norm->name);
    }
  }

 private:
  struct Linear {
    Doubles weight;
    Doubles bias;  // one column; empty if the linear has none
  };

  Linear take(const std::string& part) const {
    const Matrix& weight = block_.at(part);
    const auto rows = static_cast<std::size_t>(weight.rows);
    Linear linear = {{rows,
                      static_cast<std::size_t>(weight.columns),
                      {weight.values.begin(), weight.values.end()}},
                     {}};
    if (block_.has(part + ".bias")) {
      const Matrix& bias = block_.at(part + ".bias");
      linear.bias = {rows, 1, {bias.values.begin(), bias.values.end()}};
    } else if (config_.norm == NormKind::layer) {
      linear.bias = {rows, 1, std::vector<double>(rows)};  // zeros, to fold beta into
    }
    return linear;
  }

  void put(const std::string& part, const Linear& linear) {
    const auto narrowed = [](const Doubles& from) {
      std::vector<float> values;
      values.reserve(from.values.size());
      for (const double value : from.values) values.push_back(static_cast<float>(value));
      return values;
    };
    block_.at(part).values = narrowed(linear.weight);
    if (linear.bias.rows == 0) return;
    block_.parts[part + ".bias"] = {1, static_cast<std::int64_t>(linear.bias.rows),
                                    narrowed(linear.bias)};
  }

  // An output gate multiplies single values of a head, so that heads with a gate cannot be rotated.
  bool turns_heads() const { return !block_.has("attention_gate"); }

  // Rewrites a linear after a norm: folds in the norm's gain and beta; it reads the rotated stream.
  void reading(const std::string& part, const std::string& norm) {
    Linear linear = take(part);
    const std::vector<float>& gain = block_.at(norm).values;
    const bool shifted = block_.has(norm + ".bias");
    for (std::size_t r = 0; r < linear.weight.rows; ++r) {
      double* row = linear.weight.row(r);
      if (shifted) {
        const std::vector<float>& beta = block_.at(norm + ".bias").values;
        double sum = 0;
        for (std::size_t k = 0; k < linear.weight.columns; ++k) sum += row[k] * double{beta[k]};
        linear.bias.values[r] += sum;
      }
      for (std::size_t k = 0; k < linear.weight.columns; ++k) row[k] *= double{gain[k]};
    }
    rotate_columns(linear.weight, stream_);
    if (part == "v" && turns_heads()) {
      rotate_rows(linear.weight, heads_);
      rotate_rows(linear.bias, heads_);
    }
    put(part, linear);
  }

  // Rewrites a linear whose outputs are added to the stream.
  void writing(const std::string& part) {
    Linear linear = take(part);
    if (part == "o" && turns_heads()) rotate_columns(linear.weight, heads_);
    for (Doubles* w : {&linear.weight, &linear.bias}) {
      if (w->rows == 0) continue;
      if (config_.norm == NormKind::layer) centre_rows(*w);
      rotate_rows(*w, stream_);
    }
    put(part, linear);
  }

  void neutral(const std::string& norm) {
    std::ranges::fill(block_.at(norm).values, 1.0f);
    block_.parts.erase(norm + ".bias");
  }

  BlockTensors& block_;
  const ModelConfig& config_;
  std::vector<LinearSite> sites_;
  Rotator stream_, heads_;
};

}  // namespace

ModelConfig rotated(const ModelConfig& config, std::uint64_t seed) {
  ensure(config.rotation.block == 0, "rotate: the model is rotated already");
  require(config.width % 2 == 0, ErrorKind::bad_setting, "rotate: the width ", config.width,
          " is odd, no Hadamard matrix fits it; leave ", Setting{"rotation_seed"}, " out");
  ModelConfig to = config;
  to.rotation = {seed, hadamard_block(config.width)};
  return config.norm == NormKind::layer ? with_linear_biases(std::move(to)) : to;
}

void rotate_block(BlockTensors& block, const ModelConfig& config, const Rotation& rotation,
                  std::int64_t layer) {
  require(config.rotation.block == 0, "rotate: the block is rotated already");
  require(rotation.block >= 2 && rotation.block == hadamard_block(config.width),
          "rotate: blocks of ", rotation.block, " for the width ", config.width, ", expected ",
          hadamard_block(config.width));
  BlockRotation(block, config, layer, rotation).run();
}

}  // namespace leq
