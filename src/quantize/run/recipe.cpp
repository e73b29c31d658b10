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

constexpr const char* kTables = "^(token_embedding|head)$";
constexpr const char* kDown = R"(^layers\.[0-9]+\.(experts\.[0-9]+\.|shared\.)?down$)";
constexpr const char* kValues = R"(^layers\.[0-9]+\.(v|o|(experts\.[0-9]+\.|shared\.)?down)$)";
constexpr const char* kMost = R"(^layers\.[0-9]+\.(v|o|(experts\.[0-9]+\.|shared\.)?(up|down))$)";
constexpr const char* kMlp = R"(^layers\.[0-9]+\.(experts\.[0-9]+\.|shared\.)?(gate|up|down)$)";

// Cost of gptq+ and of the search for AWQ's scales: 63 of 75 s for SmolLM2-135M with 8 windows.
constexpr ChoosingWork kFourBitWork = {.squares = 17, .searched_squares = 70, .searched_rows = 128};
constexpr ChoosingWork kSmoothingWork = {.searched_tokens = 8.0 * kSampleTokens,
                                         .searched_rows = kSearchRows};

// Of q4 and auto.
const RecipeTypes kFourBitTypes = {"int4-g128"};
const RecipeTypes kNarrowFourBitTypes = {"q4_k", {{kTables, "q6_k"}, {kMost, "q5_k"}}};

// With gptq+, gathering all statistics first is as accurate as true-sequential here, in a fifth of
// the time. In narrow models tables are a large part of the file, and few bits cost most in v, o
// and down.
const std::array<Recipe, 7> kRecipes = {{
    {.name = "q8",
     .summary = "int8 weights and inputs in groups of 128 (down and tables of narrow models: 32), "
                "SmoothQuant with the best alpha of each layer",
     .kl_limit = 0.007,
     .advice = "type int8-g32 with method smoothquant, or f16, which lose less",
     .method = "smoothquant",
     .fold = [] { return smoothing_fold(std::nullopt); },
     .wide = {"int8-g128"},
     .narrow = {"int8-g128", {{kTables, "int8-g32"}, {kDown, "int8-g32"}}},
     .most_windows = 8,
     .work = kSmoothingWork},
    {.name = "q6",
     .summary = "q6_k weights by gptq+ after SmoothQuant (below a width of 2048 int8-g32 for down "
                "and tables)",
     .kl_limit = 0.01,
     .advice = "recipe q8",
     .method = "gptq+",
     .fold = [] { return smoothing_fold(std::nullopt); },
     .wide = {"q6_k"},
     .narrow = {"q6_k", {{kTables, "int8-g32"}, {kDown, "int8-g32"}}, ActChoice::g32},
     .most_windows = 32,
     .work = kFourBitWork},
    {.name = "q5",
     .summary = "q5_k weights by gptq+ after SmoothQuant, q6_k for v, o, down and tables",
     .kl_limit = 0.03,
     .advice = "recipe q6",
     .method = "gptq+",
     .fold = [] { return smoothing_fold(std::nullopt); },
     .wide = {"q5_k", {{kTables, "q6_k"}, {kValues, "q6_k"}}},
     .narrow = {"q5_k", {{kTables, "q6_k"}, {kValues, "q6_k"}}, ActChoice::g32},
     .most_windows = 32,
     .work = kFourBitWork},
    {.name = "q4",
     .summary = "4-bit weights by gptq+ after AWQ's scales, groups of 128 (below a width of 2048 "
                "q4_k, v, o, up and down q5_k, tables q6_k)",
     .kl_limit = 0.07,
     .advice = "recipe q5",
     .method = "gptq+",
     .fold = awq_scales_fold,
     .wide = kFourBitTypes,
     .narrow = kNarrowFourBitTypes,
     .most_windows = 32,
     .work = kFourBitWork},
    {.name = "q4-small",
     .summary = "q4_k weights by gptq+ after AWQ's scales, embedding and head too (below a width "
                "of 2048 q5_k): the smallest file of 4 bits",
     .kl_limit = 0.15,
     .advice = "recipe q4",
     .method = "gptq+",
     .fold = awq_scales_fold,
     .wide = {"q4_k", {{kTables, "q4_k"}}},
     .narrow = {"q4_k", {{kTables, "q5_k"}}},
     .most_windows = 32,
     .work = kFourBitWork},
    {.name = "zeroquant-w48",
     .summary = "no calibration: 8-bit attention and 4-bit gate, up and down, groups of 128",
     .kl_limit = 0.05,
     .advice = "recipe q4, or recipe q8",
     .method = "zeroquant",
     .wide = {"int8-g128", {{kMlp, "int4-g128"}}, ActChoice::row},
     .narrow = {"int8-g128", {{kMlp, "int4-g128"}}, ActChoice::row}},
    {.name = "auto",
     .summary = "2 or 3 bits, q4's types or 8 bits for each layer by measured KL, for any size; by "
                "default q4's size",
     .kl_limit = 0.07,
     .advice = "more bits per weight, or recipe q5",
     .method = "gptq+",
     .fold = awq_scales_fold,
     .wide = kFourBitTypes,
     .narrow = kNarrowFourBitTypes,
     .searches = true,
     .work = kFourBitWork},
}};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe* find_recipe(std::string_view name) {
  const auto found = std::ranges::find(kRecipes, name, &Recipe::name);
  return found == kRecipes.end() ? nullptr : &*found;
}

const Recipe& require_recipe(std::string_view name) {
  const Recipe* const found = find_recipe(name);
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  require(found != nullptr, "recipe ", printable(name), ": expected one of ", join(names));
  return *found;
}

void apply_recipe(const Recipe& recipe, const ModelConfig& config, QuantizeOptions& options) {
  const RecipeTypes& types = config.width < kNarrowWidth ? recipe.narrow : recipe.wide;
  options.recipe = &recipe;
  options.method = recipe.method;
  options.type = types.type;
  if (types.act != ActChoice::automatic) options.act = types.act;
  if (recipe.fold != nullptr) options.fold = recipe.fold();
  options.true_sequential = false;
  // Before the user's own, so that those take precedence.
  auto at = options.overrides.begin();
  for (const auto& [pattern, type] : types.overrides) {
    at = std::next(options.overrides.insert(at, {pattern, require_scheme(type, recipe.name)}));
  }
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
