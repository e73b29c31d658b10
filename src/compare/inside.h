// A look inside: how weights and activations are distributed, which channels stand out, and where
// hidden states lie.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// Inputs of every site, as the candidate's linears read them (rounded to codes, behind its folds):
// {"sites": [{"layer", "site", "absmax", "rms", "kurtosis", "outliers", "width", "largest_ratio",
// "channels": [...], "counts": [...]}]}. "channels": the largest |x| of each channel as a multiple
// of the median channel's, the largest of each of at most 64 stretches of neighbours. "outliers":
// channels above 6 times the median. "counts": over [-4, 4] RMS of the site's own inputs. Throws
// Error for a rotated candidate.
Json measure_activations(Workbench& bench, const Candidate& candidate);

// The linears of the middle layer as stored, folds included: [{"part", "counts": [...], "kurtosis",
// "skewness", "deviation", "largest"}]; counts over [-4, 4] standard deviations of the candidate's
// own tensor.
Json measure_weights(Workbench& bench, const Candidate& candidate);

// Bits of each linear's codes: {"units": [{"layer", "kind", "name", "bits"}]}.
Json measure_bits(Workbench& bench, const Candidate& candidate);

// The hidden states after the last layer of one window, on the two main axes of the unquantized
// model's (PCA): {"points": [[x, y], ...], "explained": [share, share], "shift": mean distance as a
// share of the spread}. From its second position on: the first has massive activations (Sun et al.
// 2024), which would be the first axis. Throws Error for a rotated candidate.
inline constexpr std::int64_t kFirstHidden = 1;
Json measure_hidden(Workbench& bench, const Candidate& candidate);

}  // namespace leq
