#include "compare/page/report_tables.h"

#include <algorithm>

#include "backend/steps.h"
#include "compare/analysis.h"
#include "compare/claims.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

constexpr double kMegabyte = 1e6;

Cell number_cell(const std::optional<double>& value, int decimals, double unit = 1) {
  return value ? Cell(*value / unit, decimals) : Cell();
}

Cell whole(const Json& value) { return Cell(value.get<std::int64_t>()); }

double real(const Json& value) { return value.get<double>(); }

// The median speed of a test; empty if it was not measured.
Cell speed_cell(const Json& results, const std::string& spec, const char* test) {
  if (!results.contains("speed") || !results["speed"].contains(spec)) return {};
  return Cell(real(results["speed"][spec][test]["tps"]), 1);
}

// Calls add(spec, entry) for each entry of a group: the candidates in order, then any other specs
// of the group.
template <class Add>
void each_entry(const Json& results, const std::string& group, const Add& add) {
  if (!results.contains(group)) return;
  const std::vector<std::string> specs = compared_specs(results, true);
  for (const std::string& spec : specs) {
    if (results[group].contains(spec)) add(spec, results[group][spec]);
  }
  for (const auto& [spec, entry] : results[group].items()) {
    if (std::ranges::find(specs, spec) == specs.end()) add(spec, entry);
  }
}

void add_histogram(Table& table, const std::string& row, const std::string& part,
                   const Json& counts) {
  const auto bins = static_cast<double>(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double middle = -4 + 8 * (static_cast<double>(i) + 0.5) / bins;
    table.add({{"who", row}, {"part", part}, {"at", Cell(middle, 4)}, {"count", whole(counts[i])}});
  }
}

void add_quality(Row& row, const Json& entry) {
  row.emplace_back("perplexity", Cell(real(entry["ppl"]), 4));
  row.emplace_back("KL, nats", Cell(real(entry["kl_mean"]), 6));
  row.emplace_back("KL error", Cell(real(entry["kl_mean_stderr"]), 6));
}

}  // namespace

ReportTable head_to_head_table(const Json& results) {
  ReportTable report = {"head_to_head", "Head to head", {}};
  for (const std::string& spec : compared_specs(results, true)) {
    const auto quality = [&](const char* key) {
      return result_number(results, "quality", spec, key);
    };
    const MeanInterval kl = kl_interval(results, "quality", spec);
    report.table.add(
        {{"method", spec},
         {"type", results["file"][spec]["type"].get<std::string>()},
         {"bits/weight", number_cell(result_number(results, "file", spec, "bits_per_weight"), 2)},
         {"perplexity", number_cell(quality("ppl"), 3)},
         {"+-", number_cell(quality("stderr"), 3)},
         {"KL, nats", number_cell(quality("kl_mean"), 5)},
         {"KL low", Cell(kl.interval.low, 5)},
         {"KL high", Cell(kl.interval.high, 5)},
         {"same top, %", number_cell(quality("same_top1"), 2, 0.01)},
         {"prompt, t/s", speed_cell(results, spec, "prompt")},
         {"generation, t/s", speed_cell(results, spec, "generation")},
         {"file, MB",
          number_cell(result_number(results, "file", spec, "file_bytes"), 2, kMegabyte)},
         {"memory, MB",
          number_cell(result_number(results, "speed", spec, "memory_bytes"), 2, kMegabyte)},
         {"setup, s", number_cell(result_number(results, "file", spec, "setup_seconds"), 1)},
         {"calibration tokens", whole(results["file"][spec]["calibration_tokens"])},
         {"source", "measured"}});
  }
  return report;
}

namespace {

// Paired tests of all pairs of candidates.
ReportTable pairs_table(const Json& results) {
  ReportTable report = {"pairs", "Paired tests over windows, all pairs", {}};
  const std::pair<const char*, const char*> measures[] = {{"KL divergence", "window_kl"},
                                                          {"log-likelihood", "window_nll"}};
  for (const auto& [name, key] : measures) {
    for (const PairOutcome& outcome : pair_outcomes(results, key)) {
      report.table.add({{"measure", name},
                        {"first", outcome.first},
                        {"second", outcome.second},
                        {"difference, nats", Cell(outcome.test.mean, 6)},
                        {"low", Cell(outcome.test.confidence.low, 6)},
                        {"high", Cell(outcome.test.confidence.high, 6)},
                        {"t", Cell(outcome.test.t, 2)},
                        {"p", Cell(outcome.test.p, 5)},
                        {"p corrected", Cell(outcome.corrected, 5)},
                        {"effect d", Cell(outcome.test.effect, 2)},
                        {"windows", Cell(outcome.test.pairs)},
                        {"first is", outcome.verdict}});
    }
  }
  return report;
}

ReportTable layers_table(const Json& results) {
  ReportTable report = {"layers", "Errors by layer", {}};
  each_entry(results, "layers", [&](const std::string& spec, const Json& entry) {
    for (const Json& row : entry["layers"]) {
      const auto optional = [&](const char* key) {
        return row.contains(key) && row[key].is_number() ? std::optional(real(row[key]))
                                                         : std::nullopt;
      };
      report.table.add({{"method", spec},
                        {"after layer", whole(row["layer"])},
                        {"own error", Cell(real(row["local"]), 5)},
                        {"gain", Cell(real(row["gain"]), 3)},
                        {"error", Cell(real(row["error"]), 5)},
                        {"error / last", Cell(real(row["share_error"]), 5)},
                        {"bound / last", Cell(real(row["share_bound"]), 5)},
                        {"L e / last", Cell(real(row["share_linear"]), 5)},
                        {"C^L / last", Cell(real(row["share_worst"]), 5)},
                        {"SQNR, dB", number_cell(optional("sqnr_db"), 1)},
                        {"cosine", Cell(real(row["cosine"]), 6)},
                        {"KL alone, nats", number_cell(optional("kl_alone"), 6)},
                        {"KL alone error", number_cell(optional("kl_alone_stderr"), 6)}});
    }
  });
  return report;
}

ReportTable weights_table(const Json& results) {
  ReportTable report = {"weights", "Weights of the middle layer, as stored", {}};
  each_entry(results, "weights", [&](const std::string& spec, const Json& entry) {
    for (const Json& part : entry["parts"]) {
      report.table.add({{"method", spec},
                        {"layer", whole(entry["layer"])},
                        {"part", part["part"].text()},
                        {"deviation", Cell(real(part["deviation"]), 5)},
                        {"largest, deviations", Cell(real(part["largest"]), 2)},
                        {"kurtosis", Cell(real(part["kurtosis"]), 3)},
                        {"skewness", Cell(real(part["skewness"]), 4)}});
    }
  });
  return report;
}

ReportTable weight_histogram_table(const Json& results) {
  ReportTable report = {"weight_histograms", "Histograms of weights, in deviations", {}};
  each_entry(results, "weights", [&](const std::string& spec, const Json& entry) {
    for (const Json& part : entry["parts"]) {
      add_histogram(report.table, spec, part["part"].text(), part["counts"]);
    }
  });
  return report;
}

ReportTable activations_table(const Json& results) {
  ReportTable report = {"activations", "Inputs of linears, as they are multiplied", {}};
  each_entry(results, "activations", [&](const std::string& spec, const Json& entry) {
    for (const Json& site : entry["sites"]) {
      report.table.add({{"method", spec},
                        {"layer", whole(site["layer"])},
                        {"site", site["site"].text()},
                        {"channels", whole(site["width"])},
                        {"largest", Cell(real(site["absmax"]), 3)},
                        {"RMS", Cell(real(site["rms"]), 4)},
                        {"kurtosis", Cell(real(site["kurtosis"]), 2)},
                        {"outlier channels", whole(site["outliers"])},
                        {"largest channel / median", Cell(real(site["largest_ratio"]), 2)}});
    }
  });
  return report;
}

ReportTable channels_table(const Json& results) {
  ReportTable report = {"channels", "Largest input of each stretch of channels / median", {}};
  each_entry(results, "activations", [&](const std::string& spec, const Json& entry) {
    for (const Json& site : entry["sites"]) {
      for (std::size_t i = 0; i < site["channels"].size(); ++i) {
        report.table.add({{"method", spec},
                          {"layer", whole(site["layer"])},
                          {"site", site["site"].text()},
                          {"stretch", Cell(static_cast<std::int64_t>(i))},
                          {"ratio", Cell(real(site["channels"][i]), 3)}});
      }
    }
  });
  return report;
}

ReportTable activation_histogram_table(const Json& results) {
  ReportTable report = {"activation_histograms", "Histograms of inputs, in units of their RMS", {}};
  each_entry(results, "activations", [&](const std::string& spec, const Json& entry) {
    for (const Json& site : entry["sites"]) {
      add_histogram(report.table, spec,
                    layer_tensor(site["layer"].get<std::int64_t>(), site["site"].text()),
                    site["counts"]);
    }
  });
  return report;
}

ReportTable hidden_table(const Json& results) {
  ReportTable report = {"hidden", "Hidden states on the two main axes", {}};
  each_entry(results, "hidden", [&](const std::string& spec, const Json& entry) {
    for (const Json& point : entry["points"]) {
      report.table.add(
          {{"method", spec}, {"x", Cell(real(point[0]), 4)}, {"y", Cell(real(point[1]), 4)}});
    }
  });
  return report;
}

ReportTable calibration_table(const Json& results) {
  ReportTable report = {"calibration", "Quality over calibration text", {}};
  each_entry(results, "calibration", [&](const std::string& spec, const Json& entry) {
    Row row = {{"method", spec},
               {"tokens", whole(results["file"][spec]["calibration_tokens"])},
               {"setup, s", number_cell(result_number(results, "file", spec, "setup_seconds"), 1)}};
    add_quality(row, entry);
    report.table.add(row);
  });
  return report;
}

ReportTable inputs_table(const Json& results) {
  ReportTable report = {"inputs", "Scales of the inputs: online against static", {}};
  each_entry(results, "inputs", [&](const std::string& spec, const Json& entry) {
    Row row = {{"method", spec}};
    add_quality(row, entry);
    report.table.add(row);
  });
  return report;
}

ReportTable contexts_table(const Json& results) {
  ReportTable report = {"contexts", "Quality over context", {}};
  each_entry(results, "contexts", [&](const std::string& spec, const Json& rows) {
    for (const Json& entry : rows) {
      Row row = {{"method", spec},
                 {"context", whole(entry["context"])},
                 {"windows", whole(entry["windows"])}};
      add_quality(row, entry);
      report.table.add(row);
    }
  });
  return report;
}

ReportTable batches_table(const Json& results) {
  ReportTable report = {"batches", "Generation over sequences at once", {}};
  each_entry(results, "batches", [&](const std::string& spec, const Json& rows) {
    for (const Json& entry : rows) {
      report.table.add({{"method", spec},
                        {"sequences", whole(entry["sequences"])},
                        {"tokens/s", Cell(real(entry["tps"]), 1)},
                        {"slowest run", Cell(real(entry["min"]), 1)},
                        {"fastest run", Cell(real(entry["max"]), 1)}});
    }
  });
  return report;
}

ReportTable ranks_table(const Json& results) {
  ReportTable report = {"ranks", "Ranks that divide this machine's cores", {}};
  each_entry(results, "ranks", [&](const std::string& spec, const Json& rows) {
    for (const Json& entry : rows) {
      report.table.add({{"method", spec},
                        {"ranks", whole(entry["ranks"])},
                        {"prompt, t/s", Cell(real(entry["prompt"]["tps"]), 1)},
                        {"generation, t/s", Cell(real(entry["generation"]["tps"]), 1)}});
    }
  });
  return report;
}

ReportTable parts_table(const Json& results) {
  ReportTable report = {"parts", "Latency by part, ms (the paper's Table 5)", {}};
  for (const char* test : {"generation", "prompt"}) {
    each_entry(results, "speed", [&](const std::string& spec, const Json& entry) {
      const Json& parts = entry[std::string(test) + "_parts"];
      Row row = {{"method", spec}, {"test", entry[test]["test"].text()}};
      for (const std::string_view part : kStepPartNames) {
        row.emplace_back(std::string(part), Cell(real(parts[part]), 4));
      }
      row.emplace_back("step", Cell(real(parts["step_ms"]), 4));
      row.emplace_back("slowest, t/s", Cell(real(entry[test]["min"]), 1));
      row.emplace_back("fastest, t/s", Cell(real(entry[test]["max"]), 1));
      report.table.add(row);
    });
  }
  return report;
}

ReportTable cache_bound_table(const Json& results) {
  ReportTable report = {"cache_bound", "Theorem 2: largest error as a share of the bound", {}};
  each_entry(results, "cache_bound", [&](const std::string&, const Json& rows) {
    for (const Json& row : rows) {
      report.table.add({{"after layer", whole(row["layer"])},
                        {"8 bits", Cell(real(row["share_8"]), 4)},
                        {"4 bits", Cell(real(row["share_4"]), 4)},
                        {"2 bits", Cell(real(row["share_2"]), 4)}});
    }
  });
  return report;
}

ReportTable fusion_table(const Json& results) {
  ReportTable report = {"fusion", "Codes made with the numbers, and after them", {}};
  each_entry(results, "fusion", [&](const std::string& spec, const Json& entry) {
    report.table.add({{"method", spec},
                      {"rows", whole(entry["rows"])},
                      {"columns", whole(entry["columns"])},
                      {"fused, ms", Cell(real(entry["fused_ms"]), 5)},
                      {"apart, ms", Cell(real(entry["apart_ms"]), 5)},
                      {"ratio", Cell(real(entry["ratio"]), 3)},
                      {"low", Cell(real(entry["ratio_low"]), 3)},
                      {"high", Cell(real(entry["ratio_high"]), 3)}});
  });
  return report;
}

ReportTable bits_table(const Json& results) {
  ReportTable report = {"bits", "Bits chosen by a search", {}};
  each_entry(results, "bits", [&](const std::string& spec, const Json& entry) {
    for (const Json& unit : entry["units"]) {
      report.table.add({{"method", spec},
                        {"unit", unit["name"].text()},
                        {"layer", whole(unit["layer"])},
                        {"kind", unit["kind"].text()},
                        {"bits", whole(unit["bits"])}});
    }
  });
  return report;
}

ReportTable choices_table(const Json& results) {
  ReportTable report = {"choices", "Multiple choice by log-likelihood", {}};
  for (const Json& task : results["tasks"]) {
    each_entry(results, "choices " + task.text(), [&](const std::string& spec, const Json& entry) {
      Row row = {{"task", task.text()}, {"method", spec}, {"questions", whole(entry["questions"])}};
      for (const char* key :
           {"acc", "acc_low", "acc_high", "acc_norm", "acc_norm_low", "acc_norm_high"}) {
        row.emplace_back(key, Cell(real(entry[key]), 4));
      }
      report.table.add(row);
    });
  }
  return report;
}

ReportTable claims_table(const Json& results) {
  ReportTable report = {"claims", "The paper's claims, tried", {}};
  for (const Claim& claim : try_claims(results)) {
    report.table.add({{"claim", claim.text},
                      {"where", claim.place},
                      {"verdict", std::string(verdict_text(claim.verdict))},
                      {"found", claim.found}});
  }
  return report;
}

// The measurements that this model or machine does not support.
ReportTable not_measured_table(const Json& results) {
  ReportTable report = {"not_measured", "Left out", {}};
  for (const Json& entry : results["not_measured"]) {
    report.table.add({{"method", entry["method"].text()},
                      {"measurement", entry["measurement"].text()},
                      {"reason", entry["reason"].text()}});
  }
  return report;
}

}  // namespace

std::vector<ReportTable> report_tables(const Json& results) {
  std::vector<ReportTable> tables;
  for (const auto make :
       {head_to_head_table,     matrix_table,      eight_bits_table, pairs_table,
        choices_table,          layers_table,      bits_table,       weights_table,
        weight_histogram_table, activations_table, channels_table,   activation_histogram_table,
        hidden_table,           calibration_table, inputs_table,     contexts_table,
        batches_table,          ranks_table,       parts_table,      fusion_table,
        cache_bound_table,      claims_table,      answers_table,    not_measured_table}) {
    ReportTable table = make(results);
    if (!table.table.empty()) tables.push_back(std::move(table));
  }
  for (ReportTable& table : reported_tables()) tables.push_back(std::move(table));
  return tables;
}

}  // namespace leq
