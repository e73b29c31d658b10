// Statistics of model internals: distributions of weights and activations, outlier channels, and
// positions of hidden states.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// The inputs of every site as the candidate's linears read them (rounded to codes, after its
// folds): {"sites": [{"layer", "site", "absmax", "rms", "kurtosis", "outliers", "width",
// "largest_ratio", "channels": [...], "counts": [...]}]}. "channels": the largest |x| of each
// channel relative to the median channel's, of which at most 64 stretches of channels keep the
// maximum. "outliers": channels above 6 times the median. "counts": a histogram over [-4, 4] RMS of
// the site's own inputs.
Json measure_activations(Workbench& bench, const Candidate& candidate);

// The linears of the middle layer as stored, including folds: [{"part", "counts": [...],
// "kurtosis", "skewness", "deviation", "largest"}]; counts are a histogram over [-4, 4] standard
// deviations of the candidate's own tensor.
Json measure_weights(Workbench& bench, const Candidate& candidate);

// The bits per code of each linear: {"units": [{"layer", "kind", "name", "bits"}]}.
Json measure_bits(Workbench& bench, const Candidate& candidate);

// The hidden states after the last layer of one window, on the two main axes (PCA) of the
// unquantized model's states: {"points": [[x, y], ...], "explained": [share, share], "shift": mean
// distance as a share of the spread}. Skips the first position, whose massive activations (Sun et
// al. 2024) would dominate the axes.
inline constexpr std::int64_t kFirstHidden = 1;
Json measure_hidden(Workbench& bench, const Candidate& candidate);

}  // namespace leq
