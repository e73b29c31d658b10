// Measures curves of quality over calibration text, input scaling and context, and checks the bound
// of the paper's theorem 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// SmoothQuant and GPTQ with each of these numbers of calibration windows.
std::vector<Candidate> calibration_candidates(std::span<const std::int64_t> windows);
// SmoothQuant with each kind of input scaling: per row, per 128 columns, fixed, moving.
std::vector<Candidate> input_candidates();
// The unquantized model, SimQuant's caches, and the methods of the paper's Table 3.
std::vector<Candidate> context_candidates();
std::vector<Candidate> batch_candidates();

// Perplexity and KL divergence in windows of each length that model and text allow: [{"context",
// "windows", "ppl", "stderr", "kl_mean", "kl_mean_stderr"}].
Json measure_contexts(Workbench& bench, const Candidate& candidate);

// Checks theorem 2 on the hidden states after each layer, rounded per channel as the paper defines
// SimQuant. Returns [{"layer", "share_8", "share_4", "share_2"}]: the largest |X - X'| as a share
// of the bound (max - min) / (2^b - 1).
Json measure_cache_bound(Workbench& bench, const Candidate& candidate);

}  // namespace leq
