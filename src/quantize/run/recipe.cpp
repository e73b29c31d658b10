// Recipes, and how much calibration text fits into the time that a run may take.
#include "quantize/run/quantize.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "quantize/rewrites/fold.h"
#include "quantize/run/block_run.h"
#include "quantize/run/steps.h"

namespace leq {
namespace {

constexpr double kSharedAlpha = 0.5;

void put_first(QuantizeOptions& options, const char* pattern, const char* type) {
  options.overrides.insert(options.overrides.begin(), {pattern, require_scheme(type, "recipe")});
}

void apply_q8(QuantizeOptions& options, bool narrow) {
  options.method = "smoothquant";
  options.type = "int8-g128";
  options.fold = smoothing_fold(std::nullopt);
  if (!narrow) return;
  put_first(options,
            R"(^(token_embedding|head|layers\.[0-9]+\.(experts\.[0-9]+\.|shared\.)?down)$)",
            "int8-g32");
}

void apply_four_bits(QuantizeOptions& options, bool narrow) {
  options.method = "gptq+";
  options.type = narrow ? "int4-g64" : "int4-g128";
}

// Gathering all statistics first is as accurate here as true-sequential, in a fifth of the time. In
// narrow models, tables are a large part of the file and 4 bits cost most in v and down.
void apply_q4(QuantizeOptions& options, bool narrow) {
  options.method = "gptq+";
  options.type = narrow ? "q4_k" : "int4-g128";
  options.fold = awq_scales_fold();
  options.true_sequential = false;
  if (!narrow) return;
  put_first(options, R"(^(token_embedding|head)$)", "q6_k");
  put_first(options, R"(^layers\.[0-9]+\.(v|(experts\.[0-9]+\.|shared\.)?down)$)", "q5_k");
}

void apply_q4_small(QuantizeOptions& options, bool) {
  options.method = "gptq+";
  options.type = "q4_k";
  options.fold = awq_scales_fold();
  options.true_sequential = false;
  put_first(options, R"(^(token_embedding|head)$)", "q4_k");
}

void apply_zeroquant_w48(QuantizeOptions& options, bool) {
  options.method = "zeroquant";
  options.type = "int8-g128";
  options.act = ActChoice::row;
  put_first(options, R"(^layers\.[0-9]+\.(experts\.[0-9]+\.|shared\.)?(gate|up|down)$)",
            "int4-g128");
}

// A plan mixes units of different bit widths, so that neither folds nor gathered input statistics
// may depend on the bit width.
void apply_auto(QuantizeOptions& options, bool narrow) {
  apply_four_bits(options, narrow);
  options.fold = smoothing_fold(kSharedAlpha);
  options.true_sequential = false;
}

// Cost of gptq+ and of the search for AWQ's scales: 63 of 75 s for SmolLM2-135M with 8 windows.
constexpr ChoosingWork kFourBitWork = {.squares = 17, .searched_squares = 70, .searched_rows = 128};

const std::array<Recipe, 5> kRecipes = {{
    {.name = "q8",
     .summary = "int8 weights and inputs in groups of 128 (down and tables of narrow models: 32), "
                "SmoothQuant with the best alpha of each layer",
     .kl_limit = 0.005,
     .advice = "type int8-g32 with method smoothquant, or f16, which lose less",
     .apply = apply_q8,
     .few_windows_suffice = true,
     .work = {.searched_tokens = 8.0 * kSampleTokens, .searched_rows = kSearchRows}},
    {.name = "q4",
     .summary =
         "4-bit weights by gptq+ after AWQ's scales, groups of 128 (below a width of 2048 q4_k, v "
         "and down q5_k, tables q6_k)",
     .kl_limit = 0.05,
     .advice = "recipe q8",
     .apply = apply_q4,
     .few_windows_suffice = true,
     .work = kFourBitWork},
    {.name = "q4-small",
     .summary = "q4_k for all weights, embedding and head too: the smallest file of 4 bits",
     .kl_limit = 0.15,
     .advice = "recipe q4",
     .apply = apply_q4_small,
     .few_windows_suffice = true,
     .work = kFourBitWork},
    {.name = "zeroquant-w48",
     .summary = "no calibration: 8-bit attention and 4-bit gate, up and down, groups of 128",
     .kl_limit = 0.05,
     .advice = "recipe q4, or recipe q8",
     .apply = apply_zeroquant_w48},
    {.name = "auto",
     .summary = "2, 3, 4 or 8 bits for each layer by measured KL, by default 4.25 bits per weight; "
                "for a size that q4 does not have, as at its own size q4 loses less",
     .kl_limit = 0.05,
     .advice = "more bits per weight, recipe q4, or recipe q8",
     .apply = apply_auto,
     .searches = true,
     .work = {.squares = kFourBitWork.squares}},
}};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& require_recipe(std::string_view name) {
  const auto found = std::ranges::find(kRecipes, name, &Recipe::name);
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  require(found != kRecipes.end(), "recipe ", printable(name), ": expected one of ", join(names));
  return *found;
}

void apply_recipe(const Recipe& recipe, const ModelConfig& config, QuantizeOptions& options) {
  options.recipe = &recipe;
  recipe.apply(options, config.width < kNarrowWidth);
}

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
                              const QuantizeOptions& options) {
  Workers workers(options.threads);
  Backend& backend = *workers.backend;
  CalibrationShape shape;
  shape.windows = std::ssize(data.windows);
  shape.length = data.length;
  shape.sample_tokens = kSampleTokens;
  plan_calibration(model.config, shape, backend.layout(), options.max_ram);

  const BlockSource source(model.config, model.tensors);
  HiddenStates hidden(shape.windows, data.length * model.config.width, {});
  source.embed(data, hidden);
  const BlockTensors block = source.load(0);
  BlockRun run(model.config, 0, block, backend, data.length, &source);
  const BlockInputs inputs(model.config, data, {});
  double best = 0;
  Stopwatch watch;
  int done = 0;
  run_pass({run, hidden, backend, workers.pool, "layers.0",
            [&] {
              require(!options.stop(), ErrorKind::interrupted, "interrupted");
              const double seconds = watch.seconds();
              best = done++ == 0 ? seconds : std::min(best, seconds);
              watch.restart();
            },
            one_rank(), &inputs},
           {.sites = all_sites(run.sites()),
            .wanted = {.hessian = false, .sample_tokens = kSampleTokens}});
  return best * static_cast<double>(model.config.layer_count());
}

}  // namespace leq
