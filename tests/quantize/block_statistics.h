// The statistics that calibration gathers in the unquantized blocks of a model.
#pragma once

#include <vector>

#include "backend/cpu/workers.h"
#include "quantize/calibration/calibration.h"
#include "quantize/run/block_run.h"
#include "quantize/run/quantize.h"
#include "tokenizer/tokenizer.h"

namespace leq::test {

// Statistics with X^T X of every layer, by site.
inline std::vector<SiteStatistics> block_statistics(const ImportedModel& model,
                                                    const CalibrationData& data, int threads) {
  Workers workers(threads);
  const BlockSource source(model.config, model.tensors);
  HiddenStates hidden(std::ssize(data.windows), data.length * model.config.width, {});
  source.embed(data, hidden);
  BlockInputs inputs(model.config, data, {});
  std::vector<SiteStatistics> layers;
  for (std::int64_t layer = 0; layer < model.config.layer_count(); ++layer) {
    const BlockTensors block = source.load(layer);
    BlockRun run(model.config, layer, block, *workers.backend, data.length, &source);
    inputs.keep(layer, hidden);
    const Pass pass = {.sites = all_sites(run.sites()), .wanted = {.hessian = true}};
    layers.push_back(run_pass({.run = run,
                               .hidden = hidden,
                               .backend = *workers.backend,
                               .pool = workers.pool,
                               .block = "block",
                               .inputs = &inputs},
                              pass));
  }
  return layers;
}
inline std::vector<SiteStatistics> block_statistics(const ImportedModel& model,
                                                    const QuantizeOptions& options) {
  return block_statistics(
      model,
      calibration_data(options.calibration, Tokenizer(model.tokenizer), model.config.context),
      options.threads);
}

}  // namespace leq::test
