// Measures a candidate's cost and quality: file size, perplexity and KL divergence.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// setup_seconds, file_bytes, bits_per_weight, calibration_tokens, worst_error.
Json measure_file(Workbench& bench, const Candidate& candidate);

// Uses the functions and key names of leq-perplexity: ppl, nll, stderr, windows, scored, kl_mean,
// kl_mean_stderr, ..., and for each window window_nll, window_kl (nats). The base's KL is measured
// against its own distributions.
Json measure_quality(Workbench& bench, const Candidate& candidate);

// Like measure_quality, over the given windows in an existing session.
Json quality_of(Workbench& bench, Session& session, const CompareWindows& windows);

}  // namespace leq
