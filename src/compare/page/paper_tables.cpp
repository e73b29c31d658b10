// The paper's tables and figures asked of the model at hand: measured rows only, the paper's own
// numbers are in reported.cpp.
#include <algorithm>
#include <functional>

#include "base/text.h"
#include "compare/claim_words.h"
#include "compare/page/report_tables.h"

namespace leq {
namespace {

using namespace claims;

// One measure of Table 3. `gain`: how far SmoothQuant is ahead of the better of the two others, as
// a share of its number; nothing where a number is 0.
struct MatrixRow {
  std::string measure;
  int decimals = 0;
  std::optional<double> gptq, awq, smooth, gain;
};

std::optional<double> gain_over(double smooth, double other, bool less_is_better) {
  if (smooth <= 0 || other <= 0) return std::nullopt;
  return less_is_better ? 1 - smooth / other : smooth / other - 1;
}

// The longest context at which all three were measured, as text; "" where there is none.
struct LongContext {
  std::int64_t positions = 0;
  const Json* gptq = nullptr;
  const Json* awq = nullptr;
  const Json* smooth = nullptr;
};
std::optional<LongContext> longest_context(const Json& results) {
  const auto rows = [&](const char* spec) -> const Json* {
    const bool there = has(results, "contexts", spec) && !results["contexts"][spec].empty();
    return there ? &results["contexts"][spec][results["contexts"][spec].size() - 1] : nullptr;
  };
  const LongContext last = {
      .gptq = rows("gptq"), .awq = rows("awq"), .smooth = rows("smoothquant:int8")};
  if (last.gptq == nullptr || last.awq == nullptr || last.smooth == nullptr) return std::nullopt;
  LongContext found = last;
  found.positions = (*last.smooth)["context"].get<std::int64_t>();
  return found;
}

std::vector<MatrixRow> matrix_rows(const Json& results) {
  const std::string gptq = spec_of(results, "gptq"), awq = spec_of(results, "awq"),
                    smooth = spec_of(results, "smoothquant");
  std::vector<MatrixRow> rows;
  if (gptq.empty() || awq.empty() || smooth.empty()) return rows;
  const auto add = [&](const std::string& measure, int decimals, bool less_is_better,
                       const std::function<std::optional<double>(const std::string&)>& value) {
    MatrixRow row = {measure, decimals, value(gptq), value(awq), value(smooth), std::nullopt};
    if (!row.gptq || !row.awq || !row.smooth) return;
    const auto [low, high] = std::minmax(*row.gptq, *row.awq);
    row.gain = gain_over(*row.smooth, less_is_better ? low : high, less_is_better);
    rows.push_back(row);
  };
  const auto from = [&](const char* group, const char* key, double unit = 1) {
    return [&results, group, key, unit](const std::string& spec) -> std::optional<double> {
      const auto number = result_number(results, group, spec, key);
      return number ? std::optional(*number / unit) : std::nullopt;
    };
  };
  if (const auto context = longest_context(results)) {
    const auto last = [&](const char* key) {
      return [&, key](const std::string& spec) -> std::optional<double> {
        const Json* row = spec == gptq  ? context->gptq
                          : spec == awq ? context->awq
                                        : context->smooth;
        return (*row)[key].get<double>();
      };
    };
    const std::string at = " at " + std::to_string(context->positions) + " positions";
    add("perplexity" + at, 4, true, last("ppl"));
    add("KL divergence" + at + ", nats", 6, true, last("kl_mean"));
  } else {
    add("perplexity", 4, true, from("quality", "ppl"));
    add("KL divergence, nats", 6, true, from("quality", "kl_mean"));
  }
  const auto speed = [&](const char* test) {
    return [&results, test](const std::string& spec) -> std::optional<double> {
      if (!has(results, "speed", spec)) return std::nullopt;
      return results["speed"][spec][test]["tps"].get<double>();
    };
  };
  add("prompt, tokens/s", 1, false, speed("prompt"));
  add("generation, tokens/s", 1, false, speed("generation"));
  add("memory with the longest context, MB", 2, true, from("speed", "long_memory_bytes", 1e6));
  add("file, MB", 2, true, from("file", "file_bytes", 1e6));
  add("setup, s", 2, true, from("file", "setup_seconds"));
  add("calibration, tokens", 0, true, from("file", "calibration_tokens"));
  return rows;
}

// Nearest first.
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
    const std::string name = row.measure.substr(0, row.measure.find(','));
    if (row.gain && *row.gain != 0) (*row.gain > 0 ? better : worse).push_back(name);
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

// The methods of Table 4: codes of 8 bits, and caches.
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

std::function<std::string(const Json&)> always(const char* text) {
  return [text](const Json&) { return std::string(text); };
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
       always("Of the middle layer; activations too.")},
      {"Figures 2 and 6", "perplexity, speed, memory side by side", "Head to head, spindles",
       always("Bars around a middle line show the same numbers as the table.")},
      {"Figure 4", "radar of six measures", "Head to head",
       always("Drawn, with why areas mislead; size against KL stands beside it.")},
      {"Figure 5", "throughput over model size and method", "Head to head",
       always("A page is about one model: its column of the map is the table of speeds.")},
      {"Figure 7", "t-SNE of weight distributions", "Weights, activations, hidden states",
       always("Hidden states on their two main axes (PCA) instead: distances mean something.")},
      {"Figure 8", "quality over context", "Over calibration, context and batch",
       always("Context, calibration text and sequences at once; model size is another page.")},
      {"Appendix A.4", "significance of the differences", "Which differences are real",
       significance_answer}};
  return rows;
}

}  // namespace

ReportTable matrix_table(const Json& results) {
  ReportTable report = {"table3", "The paper's Table 3, asked here", {}};
  const auto cell = [](const std::optional<double>& value, int decimals, double unit = 1) {
    return value ? Cell(*value * unit, decimals) : Cell();
  };
  for (const MatrixRow& row : matrix_rows(results)) {
    report.table.add({{"measure", row.measure},
                      {"GPTQ", cell(row.gptq, row.decimals)},
                      {"AWQ", cell(row.awq, row.decimals)},
                      {"SmoothQuant", cell(row.smooth, row.decimals)},
                      {"SmoothQuant ahead by, %", cell(row.gain, 1, 100)}});
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
