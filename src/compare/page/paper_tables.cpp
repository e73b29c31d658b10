// The paper's tables and figures recomputed for the current model, with measured rows only; the
// paper's own numbers are in reported.cpp.
#include <algorithm>
#include <functional>

#include "base/text.h"
#include "compare/claim_words.h"
#include "compare/page/report_tables.h"

namespace leq {
namespace {

using namespace claims;

using Value = std::function<std::optional<double>(const Json& results, const std::string& spec)>;

Value number_of(const char* group, const char* key, double unit = 1) {
  return [=](const Json& results, const std::string& spec) -> std::optional<double> {
    const auto number = result_number(results, group, spec, key);
    return number ? std::optional(*number / unit) : std::nullopt;
  };
}

Value speed_of(const char* test) {
  return [=](const Json& results, const std::string& spec) -> std::optional<double> {
    if (!has(results, "speed", spec)) return std::nullopt;
    return results["speed"][spec][test]["tps"].get<double>();
  };
}

// The value of `key` at the longest measured context.
Value long_of(const char* key) {
  return [=](const Json& results, const std::string& spec) -> std::optional<double> {
    if (!has(results, "contexts", spec) || results["contexts"][spec].empty()) return std::nullopt;
    const Json& rows = results["contexts"][spec];
    return rows[rows.size() - 1][key].get<double>();
  };
}

// One row of Table 3, which shows a measure of all methods.
struct Measure {
  const char* name;
  int decimals;
  bool less_is_better;
  Value value;
};
const std::vector<Measure>& measures() {
  static const std::vector<Measure> rows = {
      {"perplexity", 4, true, number_of("quality", "ppl")},
      {"KL divergence, nats", 6, true, number_of("quality", "kl_mean")},
      {"longest context, positions", 0, false, long_of("context")},
      {"perplexity at the longest context", 4, true, long_of("ppl")},
      {"KL divergence at the longest context, nats", 6, true, long_of("kl_mean")},
      {"prompt, tokens/s", 1, false, speed_of("prompt")},
      {"generation, tokens/s", 1, false, speed_of("generation")},
      {"memory for up to 8,192 positions, MB", 2, true,
       number_of("speed", "long_memory_bytes", 1e6)},
      {"file, MB", 2, true, number_of("file", "file_bytes", 1e6)},
      {"setup, s", 2, true, number_of("file", "setup_seconds")},
      {"calibration, tokens", 0, true, number_of("file", "calibration_tokens")}};
  return rows;
}

// One measure for three methods. `gain`: SmoothQuant's advantage over the better of GPTQ and AWQ,
// relative to the value of the better one; nullopt if a value is 0.
struct MatrixRow {
  const Measure* measure = nullptr;
  double gptq = 0, awq = 0, smooth = 0;
  std::optional<double> gain = {};
};

std::vector<MatrixRow> matrix_rows(const Json& results) {
  const std::string gptq = spec_of(results, "gptq"), awq = spec_of(results, "awq"),
                    smooth = spec_of(results, "smoothquant");
  std::vector<MatrixRow> rows;
  if (gptq.empty() || awq.empty() || smooth.empty()) return rows;
  for (const Measure& measure : measures()) {
    const auto a = measure.value(results, gptq), b = measure.value(results, awq),
               own = measure.value(results, smooth);
    if (!a || !b || !own) continue;
    MatrixRow row = {&measure, *a, *b, *own};
    const double other = measure.less_is_better ? std::min(*a, *b) : std::max(*a, *b);
    if (other > 0 && *own > 0) {
      row.gain = measure.less_is_better ? 1 - *own / other : *own / other - 1;
    }
    rows.push_back(row);
  }
  return rows;
}

// Candidates in ascending order of KL divergence.
std::vector<std::pair<double, std::string>> by_kl(const Json& results) {
  std::vector<std::pair<double, std::string>> order;
  for (const std::string& spec : compared_specs(results, false)) {
    order.emplace_back(kl_interval(results, "quality", spec).mean, spec);
  }
  std::ranges::sort(order);
  return order;
}

std::string best_methods(const Json& results) {
  const auto order = by_kl(results);
  std::string text = "Nearest to the unquantized model:";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i) {
    text += (i == 0 ? " " : ", ") + order[i].second + " (" + fixed(order[i].first, 5) + ")";
  }
  return text + "; farthest: " + order.back().second + " (" + fixed(order.back().first, 5) +
         "), KL in nats.";
}

std::string speeds(const Json& results) {
  if (!results.contains("speed")) return "Not measured.";
  std::string text;
  for (const char* test : {"prompt", "generation"}) {
    const auto tps = [&](const std::string& spec) {
      return has(results, "speed", spec) ? results["speed"][spec][test]["tps"].get<double>() : 0;
    };
    std::string fastest = "base";
    for (const std::string& spec : compared_specs(results, false)) {
      if (tps(spec) > tps(fastest)) fastest = spec;
    }
    text += (text.empty() ? "Fastest " : "; ") + std::string(test) + ": " + fastest + ", " +
            fixed(tps(fastest), 0) + " tokens/s, the unquantized model " + fixed(tps("base"), 0);
  }
  return text + ".";
}

std::string matrix_answer(const Json& results) {
  std::vector<std::string> better, worse;
  for (const MatrixRow& row : matrix_rows(results)) {
    const std::string_view name = row.measure->name;
    if (row.gain && *row.gain != 0)
      (*row.gain > 0 ? better : worse).emplace_back(name.substr(0, name.find(',')));
  }
  if (better.empty() && worse.empty()) return "GPTQ, AWQ and SmoothQuant were not all compared.";
  return "SmoothQuant against the better of GPTQ and AWQ: ahead in " +
         (better.empty() ? "nothing" : join(better)) + "; behind in " +
         (worse.empty() ? "nothing" : join(worse)) + ".";
}

bool keeps_weights(const Json& results, const std::string& spec) {
  return *result_number(results, "file", spec, "bits_per_weight") ==
         *result_number(results, "file", "base", "bits_per_weight");
}

// The methods of Table 4: those with 8-bit codes, and caches.
std::vector<std::string> eight_bit_specs(const Json& results) {
  constexpr double kLeast = 7.5, kMost = 9.5;
  std::vector<std::string> specs;
  for (const std::string& spec : compared_specs(results, false)) {
    const double bits = *result_number(results, "file", spec, "bits_per_weight");
    if ((bits > kLeast && bits < kMost) || keeps_weights(results, spec)) specs.push_back(spec);
  }
  return specs;
}

std::string eight_bits_answer(const Json& results) {
  std::vector<std::string> specs = eight_bit_specs(results);
  if (specs.empty()) return "No method of 8 bits was compared.";
  const auto ppl = [&](const std::string& spec) {
    return *result_number(results, "quality", spec, "ppl");
  };
  const auto [low, high] = std::ranges::minmax(specs, {}, ppl);
  return "Perplexity " + fixed(ppl("base"), 3) + " unquantized, " + fixed(ppl(low), 3) + " (" +
         low + ") to " + fixed(ppl(high), 3) + " (" + high + ") with 8 bits or a quantized cache.";
}

std::string latency_answer(const Json& results) {
  if (!results.contains("speed")) return "Not measured.";
  std::string text = "Of a generated token, matrix products and quantization take";
  for (const std::string& spec : {std::string("base"), spec_of(results, "smoothquant")}) {
    if (!has(results, "speed", spec)) continue;
    const Json& parts = results["speed"][spec]["generation_parts"];
    const auto share = [&](const char* part) {
      return percent(parts[part].get<double>() / parts["step_ms"].get<double>());
    };
    text += (spec == "base" ? " " : "; ") + share("gemm") + " and " + share("quant") + " (" + spec +
            ")";
  }
  return text + ".";
}

// KL divergences of the context curve's caches and methods, at the longest measured context.
std::string context_answer(const Json& results) {
  if (!results.contains("contexts")) return "Not measured.";
  std::string text;
  for (const auto& [spec, rows] : results["contexts"].items()) {
    if (spec == "base" || rows.empty()) continue;
    const Json& last = rows[rows.size() - 1];
    if (text.empty()) {
      text = "KL at " + with_commas(last["context"].get<std::int64_t>()) + " positions: ";
    } else {
      text += ", ";
    }
    text += spec + " " + fixed(last["kl_mean"].get<double>(), 5);
  }
  return text + ". Calibration text and sequences at once too; model size is another page.";
}

std::string significance_answer(const Json& results) {
  const std::vector<PairOutcome> outcomes = pair_outcomes(results, "window_kl");
  const auto differ = std::ranges::count_if(
      outcomes, [](const PairOutcome& outcome) { return outcome.corrected < kSignificance; });
  return std::to_string(differ) + " of " + std::to_string(outcomes.size()) +
         " pairs differ in KL at 5 % after Bonferroni's correction.";
}

struct Answer {
  const char* place;
  const char* asks;
  const char* section;
  std::function<std::string(const Json&)> found;
};

// Applies `text` only if the group was measured.
std::function<std::string(const Json&)> where_measured(const char* group, const char* text) {
  return [=](const Json& results) {
    return std::string(results.contains(group) ? text : "Not measured.");
  };
}

const std::vector<Answer>& answers() {
  static const std::vector<Answer> rows = {
      {"Table 1", "perplexity of each method", "Head to head", best_methods},
      {"Table 2", "tokens per second and memory", "Head to head", speeds},
      {"Table 3", "SmoothQuant beside GPTQ and AWQ in all measures", "The paper's Table 3",
       matrix_answer},
      {"Table 4", "perplexity of methods of 8 bits", "The paper's Table 4", eight_bits_answer},
      {"Table 5, Figure 3", "latency by part", "Latency by part", latency_answer},
      {"Figure 1", "histograms of quantized weights", "Weights, activations, hidden states",
       where_measured("weights", "Of the middle layer; activations too.")},
      {"Figures 2 and 6", "perplexity, speed, memory side by side", "Head to head, spindles",
       where_measured("speed", "Bars around a middle line show the same numbers as the table.")},
      {"Figure 4", "radar of six measures", "Head to head",
       where_measured(
           "speed",
           "A radar chart, with a note on why its areas mislead, beside size against KL.")},
      {"Figure 5", "throughput over model size and method", "Head to head",
       where_measured("speed",
                      "A page is about one model: its column of the map is the table of speeds.")},
      {"Figure 7", "t-SNE of weight distributions", "Weights, activations, hidden states",
       where_measured("hidden",
                      "Hidden states on their two main axes (PCA) instead: distances mean "
                      "something.")},
      {"Figure 8", "quality over context", "Over calibration, context and batch", context_answer},
      {"Appendix A.4", "significance of the differences", "Which differences are real",
       significance_answer}};
  return rows;
}

}  // namespace

ReportTable matrix_table(const Json& results) {
  ReportTable report = {"table3", "The paper's Table 3, asked here", {}};
  for (const MatrixRow& row : matrix_rows(results)) {
    const auto cell = [&](double value) { return Cell(value, row.measure->decimals); };
    report.table.add({{"measure", row.measure->name},
                      {"GPTQ", cell(row.gptq)},
                      {"AWQ", cell(row.awq)},
                      {"SmoothQuant", cell(row.smooth)},
                      {"SmoothQuant ahead by, %", row.gain ? Cell(100 * *row.gain, 1) : Cell()}});
  }
  return report;
}

ReportTable eight_bits_table(const Json& results) {
  ReportTable report = {"table4", "The paper's Table 4, asked here", {}};
  constexpr std::pair<const char*, const char*> kRows[] = {
      {"base", "GPT-2"},
      {"absmax", "AbsMax Quantize, Sym Quantize 8bit"},
      {"zeropoint", "ZeroPoint Quantize"},
      {"smoothquant", "Smooth Quant Apply"},
      {"simquant", "Sim Quantize"},
      {"zeroquant", "Sym Quantize 8bit ZeroQuant Func"}};
  std::vector<std::string> specs = eight_bit_specs(results);
  if (specs.empty()) return report;
  specs.insert(specs.begin(), "base");
  const double exact = *result_number(results, "quality", "base", "ppl");
  for (const std::string& spec : specs) {
    std::string row;
    for (const auto& [method, name] : kRows) {
      if (spec.starts_with(method)) row = name;
    }
    const double ppl = *result_number(results, "quality", spec, "ppl");
    report.table.add({{"method", spec},
                      {"row of the paper", row},
                      {"perplexity", Cell(ppl, 4)},
                      {"growth, %", Cell(100 * (ppl / exact - 1), 3)},
                      {"KL, nats", Cell(kl_interval(results, "quality", spec).mean, 6)}});
  }
  return report;
}

ReportTable answers_table(const Json& results) {
  ReportTable report = {"answers", "The paper's tables and figures, answered here", {}};
  for (const Answer& answer : answers()) {
    report.table.add({{"paper", answer.place},
                      {"asks", answer.asks},
                      {"section", answer.section},
                      {"found here", answer.found(results)}});
  }
  return report;
}

}  // namespace leq
