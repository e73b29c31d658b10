// A KL divergence as rows for people and programs.
#pragma once

#include <string>

#include "eval/divergence.h"
#include "eval/divergence_base.h"
#include "eval/perplexity_report.h"
#include "report/table.h"

namespace leq {

// What a run measures, for a base file or to be compared with one. `tokens_sha256` of token_hash.
DivergenceKey divergence_key(const PerplexityReport& report, std::string tokens_sha256);

// kl_mean, kl_median, kl_p99, kl_p999, same_top1, delta_p_mean, delta_p_rms, ppl_base, ppl_ratio,
// each followed by its standard error under the same name with "_stderr".
Row divergence_row(const DivergenceResult& result);

// What people read: one line for each number, with its standard error.
std::string divergence_text(const DivergenceResult& result, const DivergenceKey& base);

}  // namespace leq
