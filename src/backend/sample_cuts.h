// Cuts of a row's candidates that the host computes for every device (docs/sampling.md). Sums are
// sums of integers, so that no order of work changes them.
#pragma once

#include <vector>

#include "backend/sample.h"

namespace leq {

// Sets logits that are more than n standard deviations below the largest to kNoLogit.
void keep_top_n_sigma(std::vector<float>& logits, float n);

// Locally typical sampling (Meister et al. 2023): keeps the fewest tokens, nearest in surprise to
// the expected surprise, that have this share of the probability. candidates[0] has a logit.
void keep_typical(std::vector<SampleCandidate>& candidates, float share);

// XTC: if the row's random number is below xtc_probability, leaves out all tokens that have a
// probability of at least xtc_threshold, except the least probable of these.
void leave_out_top(std::vector<SampleCandidate>& candidates, const SampleRule& rule);

// Mirostat 2 (Basu et al. 2021): cuts at mirostat_mu, draws, returns the surprise.
std::int32_t draw_mirostat(std::vector<SampleCandidate>& candidates, const SampleRule& rule,
                           double* surprise);

}  // namespace leq
