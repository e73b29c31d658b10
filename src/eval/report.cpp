#include "eval/report.h"

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

bool is_wikitext2_test(const PerplexityReport& report) {
  return report.dataset_hash == kWikitext2TestSha256;
}

template <class T>
void require_equal(const T& here, const Json& earlier, const char* key, std::string_view source) {
  const T there = json_get<T>(earlier, key, source);
  require(here == there, "the runs do not measure the same thing: ", key, " is ", here,
          " here and ", there, " in ", source, "; run both with the same text and protocol",
          std::string_view(key) == "tokens" ? " (models with other tokenizers do not compare by "
                                              "token)"
                                            : "");
}

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

Row report_row(const PerplexityReport& report) {
  constexpr int kShown = 4;
  return {{"ppl", Cell(report.result.ppl, kShown)},
          {"nll", Cell(report.result.nll, kShown)},
          {"stderr", Cell(report.result.standard_error, kShown)},
          {"tokens", report.tokens},
          {"windows", report.windows},
          {"scored", report.scored},
          {"protocol", std::string(protocol_name(report.settings.protocol))},
          {"window", report.settings.window},
          {"stride", report.settings.stride},
          {"join", std::string(join_name(report.settings.join))},
          {"dataset", report.dataset},
          {"dataset_hash", report.dataset_hash},
          {"text_sha256", report.text_sha256},
          {"model", report.model},
          {"type", report.type},
          {"bits_per_weight", Cell(report.bits_per_weight, 2)},
          {"cache_type_k", report.key_type},
          {"cache_type_v", report.value_type}};
}

std::string report_text(const PerplexityReport& report) {
  const std::string known = is_wikitext2_test(report) ? " (WikiText-2 raw test)" : "";
  std::string out = "protocol: " + describe(report.settings) + "\n" +
                    "dataset:  " + printable(report.dataset, std::string::npos) + ", SHA-256 " +
                    report.dataset_hash + known + "\n";
  if (const std::string check = join_check(report); !check.empty()) out += check + "\n";
  Table table;
  table.add(
      {{"model", report.model},
       {"type", report.type},
       {"bits/weight", Cell(report.bits_per_weight, 2)},
       {"KV", report.key_type == report.value_type ? report.key_type
                                                   : report.key_type + "/" + report.value_type},
       {"tokens", report.tokens},
       {"windows", report.windows},
       {"scored", report.scored},
       {"nll", Cell(report.result.nll, 5)},
       {"PPL", fixed(report.result.ppl, 4) + " +/- " + fixed(report.result.standard_error, 4)}});
  return out + table.text();
}

std::string join_check(const PerplexityReport& report) {
  const bool applies = report.vocab == kGpt2Vocabulary && is_wikitext2_test(report) &&
                       report.settings.join == Join::hf;
  if (!applies) return "";
  const std::string expected = with_commas(kWikitext2TestGpt2Tokens);
  if (report.tokens == kWikitext2TestGpt2Tokens) {
    return "join check: " + expected + " GPT-2 tokens, as they must be";
  }
  return "join check: FAILED: expected " + expected + " GPT-2 tokens, found " +
         with_commas(report.tokens) + "; is the model's tokenizer GPT-2's?";
}

EarlierRun require_same_measurement(const PerplexityReport& report, const Json& earlier,
                                    std::string_view source) {
  require(earlier.is_object(), source, ": expected the object that leq-perplexity ",
          Setting{"output"}, " json writes");
  const ProtocolSettings& settings = report.settings;
  require_equal(std::string(protocol_name(settings.protocol)), earlier, "protocol", source);
  require_equal(std::string(join_name(settings.join)), earlier, "join", source);
  require_equal(settings.window, earlier, "window", source);
  require_equal(settings.stride, earlier, "stride", source);
  require_equal(report.dataset_hash, earlier, "dataset_hash", source);
  require_equal(report.text_sha256, earlier, "text_sha256", source);
  require_equal(report.tokens, earlier, "tokens", source);
  require_equal(report.windows, earlier, "windows", source);
  require_equal(report.scored, earlier, "scored", source);
  EarlierRun run;
  run.ppl = json_get<double>(earlier, "ppl", source);
  run.standard_error = json_get<double>(earlier, "stderr", source);
  require(std::isfinite(run.ppl) && run.ppl > 0, source,
          ": ppl: expected a positive number, found ", run.ppl);
  run.source = source;
  return run;
}

Row comparison_row(const PerplexityReport& report, const EarlierRun& earlier) {
  return {{"against", earlier.source},
          {"against_ppl", Cell(earlier.ppl, 4)},
          {"ratio", Cell(report.result.ppl / earlier.ppl, 5)},
          {"difference", Cell(report.result.ppl - earlier.ppl, 4)}};
}

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
