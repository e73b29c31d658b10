#include "eval/divergence_report.h"

#include <array>
#include <utility>

#include "base/text.h"

namespace leq {
namespace {

struct NumberRow {
  const char* key;
  const char* label;
  Estimate DivergenceResult::*value;
  double scale;  // for people
  int decimals;
  const char* unit;
};
constexpr std::array<NumberRow, 9> kNumbers = {{
    {"kl_mean", "KL mean", &DivergenceResult::kl_mean, 1, 6, "nats"},
    {"kl_median", "KL median", &DivergenceResult::kl_median, 1, 6, "nats"},
    {"kl_p99", "KL 99 %", &DivergenceResult::kl_p99, 1, 6, "nats"},
    {"kl_p999", "KL 99.9 %", &DivergenceResult::kl_p999, 1, 6, "nats"},
    {"same_top1", "same top 1", &DivergenceResult::same_top1, 100, 3, "%"},
    {"delta_p_mean", "delta p mean", &DivergenceResult::delta_p_mean, 100, 4, "%"},
    {"delta_p_rms", "delta p RMS", &DivergenceResult::delta_p_rms, 100, 4, "%"},
    {"ppl_base", "PPL of the base", &DivergenceResult::ppl_base, 1, 4, ""},
    {"ppl_ratio", "PPL / base", &DivergenceResult::ppl_ratio, 1, 6, ""},
}};

}  // namespace

DivergenceKey divergence_key(const PerplexityReport& report, std::string tokens_sha256) {
  DivergenceKey key;
  key.protocol = protocol_name(report.settings.protocol);
  key.join = join_name(report.settings.join);
  key.dataset_hash = report.dataset_hash;
  key.text_sha256 = report.text_sha256;
  key.tokens_sha256 = std::move(tokens_sha256);
  key.window = report.settings.window;
  key.stride = report.settings.stride;
  key.tokens = report.tokens;
  key.windows = report.windows;
  key.scored = report.scored;
  key.vocab = report.vocab;
  key.model = report.model;
  key.type = report.type;
  key.key_type = report.key_type;
  key.value_type = report.value_type;
  return key;
}

Row divergence_row(const DivergenceResult& result) {
  Row row;
  for (const NumberRow& number : kNumbers) {
    const Estimate& estimate = result.*number.value;
    row.push_back({number.key, Cell(estimate.value, number.decimals)});
    row.push_back({std::string(number.key) + "_stderr", Cell(estimate.error, number.decimals)});
  }
  return row;
}

std::string divergence_text(const DivergenceResult& result, const DivergenceKey& base) {
  std::string out = "base: " + printable(base.model) + " (" + printable(base.type) + ", KV " +
                    printable(base.key_type) + "/" + printable(base.value_type) + "), " +
                    with_commas(result.scored) + " positions\n";
  Table table;
  for (const NumberRow& number : kNumbers) {
    const Estimate& estimate = result.*number.value;
    table.add({{"against the base", number.label},
               {"value", fixed(estimate.value * number.scale, number.decimals)},
               {"standard error", "+/- " + fixed(estimate.error * number.scale, number.decimals)},
               {"unit", number.unit}});
  }
  return out + table.text();
}

}  // namespace leq
