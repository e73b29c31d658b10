// SmoothQuant (Xiao et al. 2023): moves the magnitude of an input channel from the activations,
// which are rounded with few scales, into the weights. Scales for one site, and the search for the
// migration strength; they are folded by quantize/rewrites/fold.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quantize/rewrites/site.h"
#include "tensor/weight_layout.h"

namespace leq {

// The paper's settings: the granularity of the scales of weights and inputs.
struct SmoothingPreset {
  std::string_view name;  // "o1"
  std::string_view summary;
  QuantScheme weight;
  ActKind act = ActKind::row;
};
std::span<const SmoothingPreset> smoothing_presets();

// s_j = clamp(a_j^alpha / w_j^(1 - alpha), 1e-5, 1e5), a_j = max |x_j|, w_j = max |W_nj| over all
// consumers and over the channels that share the scale, both at least 1e-5; 1 where a_j is 0. [S]
std::vector<float> smoothing_scales(const Site& site, double alpha);

// s_j = 1 / w_j: the scaling possible without data, for comparison. [S]
std::vector<float> equalizer_scales(const Site& site);

// Rows of a weight that a search compares, evenly spaced: sufficient to find the best alpha, and a
// sixth of the work on a 7B model. A tensor with one scale for all its rows is compared whole.
inline constexpr std::int64_t kSearchRows = 1024;

struct SmoothingOptions {
  QuantScheme weight{CodeKind::int_, 8, Scaling::row, 0};
  ActKind act = ActKind::row;
  std::vector<double> alphas = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};  // ascending
};

struct SmoothingChoice {
  std::optional<double> alpha;  // none: no scaling had the least error
  std::vector<float> scales;    // [S], all 1 then
  // ||Y - Yq||^2 / ||Y||^2 over the sampled tokens and the compared rows of all consumers, weighted
  // by N / R: Y = X W^T, Yq the same with X / s and W diag(s) rounded.
  double error = 0;
  double plain_error = 0;  // without scales
};
// The alpha of least error, of equal ones the smallest; never worse than no scaling. Throws Error
// without sampled tokens.
SmoothingChoice search_smoothing(const Site& site, const SmoothingOptions& options);

}  // namespace leq
