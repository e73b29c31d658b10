// A KL divergence as table rows and as text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "eval/divergence.h"
#include "eval/divergence_base.h"
#include "eval/perplexity_report.h"
#include "report/table.h"

namespace leq {

// The key of a run, for writing a base file or comparing with one. `tokens_sha256`: token_hash.
DivergenceKey divergence_key(const PerplexityReport& report, std::string tokens_sha256);

// Cells kl_mean, kl_median, kl_p99, kl_p999, same_top1, delta_p_mean, delta_p_rms, ppl_base,
// ppl_ratio, each followed by its standard error with the suffix "_stderr"; kl_windows is a text
// with the mean of each window.
Row divergence_row(const DivergenceResult& result);

// The KL of each window of an earlier run, from JSON that divergence_row wrote; empty if it has
// none or used another base. Throws Error naming `source` if the text is damaged.
std::vector<double> earlier_window_kl(const DivergenceResult& result, const Json& earlier,
                                      std::string_view source);

// Cells against_kl, kl_difference (this - earlier, over paired windows) and
// kl_difference_stderr.
Row kl_comparison_row(const DivergenceResult& result, std::span<const double> earlier);

// Report for users: one line per number, with its standard error.
std::string divergence_text(const DivergenceResult& result, const DivergenceKey& base);

}  // namespace leq
