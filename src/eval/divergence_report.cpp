#include "eval/divergence_report.h"

#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace leq {
namespace {

struct NumberRow {
  const char* key;
  const char* label;
  Estimate DivergenceResult::*value;
  double scale;  // factor for printing
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

// The shortest decimals from which the same doubles can be parsed, separated by spaces.
std::string numbers_text(std::span<const double> numbers) {
  std::vector<std::string> texts;
  for (const double number : numbers) {
    std::array<char, 32> digits = {};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    texts.emplace_back(digits.data(), end);
  }
  return join(texts, " ");
}

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
  row.push_back({"kl_windows", numbers_text(result.window_kl)});
  return row;
}

std::vector<double> earlier_window_kl(const DivergenceResult& result, const Json& earlier,
                                      std::string_view source) {
  if (!earlier.contains("kl_windows")) return {};
  if (json_get<double>(earlier, "ppl_base", source) != result.ppl_base.value) return {};
  const auto text = json_get<std::string>(earlier, "kl_windows", source);
  std::vector<double> numbers;
  for (const std::string_view word : split(text, " ")) {
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    require(error == std::errc() && end == word.data() + word.size() && std::isfinite(number),
            source, ": kl_windows: expected numbers, found ", printable(word));
    numbers.push_back(number);
  }
  return numbers;
}

Row kl_comparison_row(const DivergenceResult& result, std::span<const double> earlier) {
  const Estimate difference = paired_difference(result.window_kl, earlier);
  const double mean =
      std::accumulate(earlier.begin(), earlier.end(), 0.0) / static_cast<double>(earlier.size());
  return {{"against_kl", Cell(mean, 6)},
          {"kl_difference", Cell(difference.value, 6)},
          {"kl_difference_stderr", Cell(difference.error, 6)}};
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
