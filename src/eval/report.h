// A perplexity with all settings that affect it, as table rows and as text; and a comparison of two
// perplexities, which fails unless both measured the same thing. A KL divergence likewise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/table.h"
#include "eval/divergence.h"

namespace leq {

struct PerplexityReport {
  std::string model;  // file name
  std::string type;   // "int8"
  std::string key_type, value_type;
  double bits_per_weight = 0;
  std::int64_t vocab = 0;
  ProtocolSettings settings;
  std::string dataset;  // file name
  std::string dataset_hash;
  std::string text_sha256;
  std::int64_t tokens = 0;   // tokens of the whole text
  std::int64_t windows = 0;  // planned
  std::int64_t scored = 0;   // planned
  PerplexityResult result;
};

// One row with the keys ppl, nll, stderr, tokens, windows, scored, protocol, dataset_hash,
// text_sha256, window, stride, join, model, type, ...
Row report_row(const PerplexityReport& report);

// Report for users: protocol, data set, counts, perplexity.
std::string report_text(const PerplexityReport& report);

// Returns "join check: ..." for joined wiki.test.raw with GPT-2's vocabulary, otherwise "".
std::string join_check(const PerplexityReport& report);

// An earlier run, read from the JSON file that leq-perplexity wrote.
struct EarlierRun {
  double ppl = 0;
  double standard_error = 0;
  std::string source;
};

// Throws Error naming a key and both values if the earlier run has another protocol, window,
// stride, join, data set, text, tokens or number of windows. Only the result may differ.
EarlierRun require_same_measurement(const PerplexityReport& report, const Json& earlier,
                                    std::string_view source);

// The cells against_ppl, ratio (this / earlier) and difference (this - earlier).
Row comparison_row(const PerplexityReport& report, const EarlierRun& earlier);

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
