// Curves: quality over calibration text, over the inputs' scales, over context; and the bound of
// the paper's theorem 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// SmoothQuant and GPTQ with so many windows of calibration text.
std::vector<Candidate> calibration_candidates(std::span<const std::int64_t> windows);
// SmoothQuant with every way to scale the inputs: for each row, 128 columns, fixed, moving.
std::vector<Candidate> input_candidates();
// The unquantized model, SimQuant's caches, and what the paper's Table 3 compares.
std::vector<Candidate> context_candidates();
std::vector<Candidate> batch_candidates();

// Perplexity and KL divergence in windows of each length that the model and the text have:
// [{"context", "windows", "ppl", "stderr", "kl_mean", "kl_mean_stderr"}].
Json measure_contexts(Workbench& bench, const Candidate& candidate);

// Theorem 2 tried on the hidden states after each layer, rounded channel by channel as the paper
// defines SimQuant: [{"layer", "share_8", "share_4", "share_2"}], the largest |X - X'| as a share
// of the bound (max - min) / (2^b - 1).
Json measure_cache_bound(Workbench& bench, const Candidate& candidate);

}  // namespace leq
