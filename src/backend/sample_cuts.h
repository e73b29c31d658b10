// Cuts of a row's candidates that the host makes for every device (docs/sampling.md). Sums are of
// whole numbers, so that no order of work changes them.
#pragma once

#include <vector>

#include "backend/sample.h"

namespace leq {

// Logits further than n standard deviations below the largest become kNoLogit.
void keep_top_n_sigma(std::vector<float>& logits, float n);

// Locally typical (Meister et al. 2023): the tokens whose surprise is nearest to its expectation,
// the fewest that make up this share of the probability. The first candidate has a logit.
void keep_typical(std::vector<SampleCandidate>& candidates, float share);

// XTC, where its coin falls so: all tokens of at least xtc_threshold are left out but the least
// probable of them.
void leave_out_top(std::vector<SampleCandidate>& candidates, const SampleRule& rule);

// Mirostat (Basu et al. 2021), version 1 or 2: cuts at mirostat_mu, draws, and tells the surprise.
std::int32_t draw_mirostat(std::vector<SampleCandidate>& candidates, const SampleRule& rule,
                           double* surprise);

}  // namespace leq
