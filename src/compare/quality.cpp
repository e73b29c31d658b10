#include "compare/quality.h"

#include <numeric>

#include "eval/report.h"

namespace leq {
namespace {

std::int64_t calibration_tokens(const Json& metadata) {
  const Json provenance = metadata.value("provenance", Json::object());
  const Json texts = provenance.value("calibration", Json::array());
  std::int64_t tokens = 0;
  for (const Json& text : texts) {
    tokens += text.value("samples", std::int64_t{0}) * text.value("length", std::int64_t{0});
  }
  return tokens;
}

// The mean negative log-likelihood of each window, in nats, as samples for paired tests.
std::vector<double> window_nlls(const Divergence& divergence) {
  std::vector<double> means;
  for (const auto& rows : divergence.windows()) {
    double sum = 0;
    for (const RowDivergence& row : rows) sum += row.nll;
    means.push_back(sum / static_cast<double>(rows.size()));
  }
  return means;
}

}  // namespace

Json measure_file(Workbench& bench, const Candidate& candidate) {
  Workbench::Made made;
  const std::filesystem::path path = bench.file_of(candidate, &made);
  const Model model(path, {.mode = LoadMode::map});
  return {{"setup_seconds", made.now ? Json(made.seconds) : Json()},
          {"file_bytes", model.file().file_bytes()},
          {"bits_per_weight", model.bits_per_weight()},
          {"type", model.type()},
          {"parameters", model.parameters()},
          {"calibration_tokens", calibration_tokens(model.file().metadata())}};
}

Json quality_of(Workbench& bench, Session& session, const CompareWindows& windows) {
  const Divergence divergence = bench.measure(session, windows);
  const DivergenceResult result = divergence.summarize(windows.settings.protocol);
  const PerplexityResult perplexity = divergence.perplexity(windows.settings.protocol);
  Json json = {{"ppl", perplexity.ppl},
               {"nll", perplexity.nll},
               {"stderr", perplexity.standard_error},
               {"windows", perplexity.windows},
               {"scored", perplexity.scored},
               {"window_nll", window_nlls(divergence)},
               {"window_kl", result.window_kl}};
  for (const auto& [name, cell] : divergence_row(result)) {
    if (const double* number = std::get_if<double>(&cell.value)) json[name] = *number;
  }
  return json;
}

Json measure_quality(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  const CompareWindows& windows = bench.windows();
  Session session = bench.session(candidate, *model, windows.settings.window);
  return quality_of(bench, session, windows);
}

}  // namespace leq
