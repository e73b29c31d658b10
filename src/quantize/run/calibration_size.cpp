#include "quantize/run/calibration_size.h"

#include <algorithm>
#include <filesystem>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "model/linear_sites.h"
#include "quantize/run/block_run.h"
#include "quantize/run/calibration_memory.h"

namespace leq {

std::int64_t windows_within(double seconds, double seconds_of_window, WindowBounds bounds) {
  std::int64_t windows = bounds.most;
  while (windows > bounds.fewest && static_cast<double>(windows) * seconds_of_window > seconds) {
    windows /= 2;
  }
  return windows;
}

double choosing_seconds(const ModelConfig& config, const ChoosingWork& work,
                        double seconds_of_window, std::int64_t length) {
  double choosing = 0, window = 0;  // numbers of multiply-adds
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const LinearSite& site : linear_sites(config, layer)) {
      const auto columns = static_cast<double>(site.inputs);
      for (const LinearSpec& weight : site.coded_weights()) {
        const auto rows = static_cast<double>(weight.outputs);
        const double searched = static_cast<double>(std::min(weight.outputs, work.searched_rows));
        window += rows * columns * static_cast<double>(length);
        choosing += work.squares * rows * columns * columns +
                    work.searched_squares * searched * columns * columns +
                    work.searched_tokens * searched * columns;
      }
    }
  }
  return window > 0 ? std::max(seconds_of_window, 0.0) * choosing / window : 0;
}

double measure_window_seconds(const ImportedModel& model, const CalibrationData& data,
                              const RunOptions& options) {
  Workers workers(options.threads);
  Backend& backend = *workers.backend;
  CalibrationShape shape;
  shape.windows = std::ssize(data.windows);
  shape.length = data.length;
  shape.sample_tokens = kSampleTokens;
  plan_calibration(model.config, shape, backend.layout(), options.max_ram);

  const BlockSource source(model.config, model.tensors, false);
  HiddenStates hidden(shape.windows, data.length * model.config.width, {});
  source.embed(data, hidden);
  const BlockTensors block = source.load(0);
  BlockRun run(model.config, 0, block, backend, data.length);
  double best = 0;
  Stopwatch watch;
  int done = 0;
  run_pass({run, hidden, backend, workers.pool, "layers.0",
            [&] {
              require(!options.stop(), ErrorKind::interrupted, "interrupted");
              const double seconds = watch.seconds();
              best = done++ == 0 ? seconds : std::min(best, seconds);
              watch.restart();
            }},
           {.sites = all_sites(run.sites()),
            .wanted = {.hessian = false, .sample_tokens = kSampleTokens}});
  return best * static_cast<double>(model.config.layer_count());
}

}  // namespace leq
