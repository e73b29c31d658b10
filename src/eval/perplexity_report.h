// A perplexity with all settings that affect it, as table rows and as text; and a comparison of two
// perplexities, which fails unless both measured the same thing.
#pragma once

#include <cstdint>

#include <string>
#include <string_view>

#include "base/json.h"
#include "eval/perplexity.h"
#include "eval/protocol.h"
#include "report/table.h"

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

}  // namespace leq
