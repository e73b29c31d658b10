// SmoothQuant (Xiao et al. 2023): moves the magnitude of an input channel from the activations,
// which have few scales, into the weights. Computes the scales of one site and searches for the
// migration strength alpha; quantize/rewrites/fold.h folds the scales.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quantize/rewrites/fold.h"
#include "tensor/weight_layout.h"

namespace leq {

// The paper's presets: the granularity of the scales of weights and inputs.
struct SmoothingPreset {
  std::string_view name;  // "o1"
  std::string_view summary;
  QuantScheme weight;
  ActKind act = ActKind::row;
};
std::span<const SmoothingPreset> smoothing_presets();

// s_j = clamp(a_j^alpha / w_j^(1 - alpha), 1e-5, 1e5): [S]. a_j = max |x_j| and w_j = max |W_nj|
// over all consumers and channels that share the scale, both at least 1e-5; s_j = 1 if a_j is 0.
std::vector<float> smoothing_scales(const Site& site, double alpha);

// s_j = 1 / w_j: [S]. The scaling that needs no data, for comparison.
std::vector<float> equalizer_scales(const Site& site);

// Rows of a weight that a search compares, evenly spaced. They are enough to find the best alpha,
// at a sixth of the work for a 7B model. A tensor with one scale is compared with all rows.
inline constexpr std::int64_t kSearchRows = 1024;

struct SmoothingOptions {
  QuantScheme weight{CodeKind::int_, 8, Scaling::row, 0};
  ActKind act = ActKind::row;
  std::vector<double> alphas = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};  // must be ascending
};

struct SmoothingChoice {
  std::optional<double> alpha;  // nullopt: no scaling had the least error
  std::vector<float> scales;    // [S]; all 1 without scaling
  // ||Y - Yq||^2 / ||Y||^2 over the sampled tokens and the compared rows of all consumers, weighted
  // by N / R. Y = X W^T, and Yq is the same with X / s and W diag(s) rounded.
  double error = 0;
  double plain_error = 0;  // error without scales
};
// The alpha of least error (the smallest one on ties), or no scaling if that is better. Throws
// Error without sampled tokens.
SmoothingChoice search_smoothing(const Site& site, const SmoothingOptions& options);

}  // namespace leq
