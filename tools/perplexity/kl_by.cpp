#include "tools/perplexity/kl_by.h"

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/progress.h"
#include "base/table.h"
#include "eval/divergence.h"
#include "tools/common/device_choice.h"

namespace leq {
namespace {

struct PartRow {
  std::string part;
  Estimate both;
  double weights = 0;  // nats
  std::optional<double> inputs;
};

Row table_row(const PartRow& part) {
  return {{"part", part.part},
          {"kl", Cell(part.both.value, 6)},
          {"kl_stderr", Cell(part.both.error, 6)},
          {"kl_weights", Cell(part.weights, 6)},
          {"kl_inputs", part.inputs ? Cell(*part.inputs, 6) : Cell()}};
}

}  // namespace

void print_kl_by(const Options& options, const Runtime& setup, const PerplexityRun& run,
                 const DivergenceBaseReader& base, const DivergenceKey& key) {
  require(options.given("kl-from"), "--kl-by: needs --kl-from FILE, the unquantized model");
  require(device_name(options) == "cpu", "--kl-by: runs on the CPU; add -dev cpu");
  const Model unquantized(options.text("kl-from"), {.mode = LoadMode::map});
  const Model& model = *setup.model;
  const bool by_site = options.text("kl-by") == "site";
  const std::vector<ModelPart> parts = by_site ? site_parts(model) : layer_parts(model);
  ThreadPool pool(setup.threads);
  Progress progress("KL by " + options.text("kl-by"), std::ssize(parts), "parts");
  Backend& backend = *setup.backend;
  const RunLimits& limits = setup.session->limits();
  Estimate kl;
  const SessionUse measure = [&](Session& session) {
    kl = measure_divergence(session, pool, run, base, key).summarize(run.protocol).kl_mean;
  };
  const auto kl_of = [&](const ModelPart& part, PartSide side) {
    if (side == PartSide::both && !part.site) {
      with_layer_of(unquantized, model, part.layer, backend, limits, measure);
    } else {
      with_rounded_part(unquantized, model, part, side, backend, limits, measure);
    }
    return kl;
  };
  const auto kl_of_tables = [&](PartSide side) {
    with_tables_of(unquantized, model, side, backend, limits, measure);
    return kl;
  };
  std::vector<PartRow> rows;
  for (const ModelPart& part : parts) {
    rows.push_back({part.name, kl_of(part, PartSide::both), kl_of(part, PartSide::weights).value,
                    kl_of(part, PartSide::inputs).value});
    progress.update(std::ssize(rows), part.name);
  }
  progress.clear();
  if (has_quantized_tables(model)) {
    rows.push_back({"embedding and head", kl_of_tables(PartSide::both),
                    kl_of_tables(PartSide::weights).value, std::nullopt});
  }
  std::ranges::sort(rows, std::greater(), [](const PartRow& row) { return row.both.value; });
  Table table;
  for (const PartRow& row : rows) table.add(table_row(row));
  std::cout << (options.text("output") == "json" ? table.json() : table.text());
}

}  // namespace leq
