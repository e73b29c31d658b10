#include "quantize/run/recipe.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "quantize/run/block_run.h"
#include "quantize/rewrites/fold.h"
#include "quantize/rewrites/smoothquant.h"

namespace leq {
namespace {

constexpr double kSharedAlpha = 0.5;

void put_first(CheckpointOptions& checkpoint, const char* pattern, const char* type) {
  checkpoint.overrides.insert(checkpoint.overrides.begin(),
                              {pattern, require_scheme(type, "recipe")});
}

void apply_q8(CheckpointOptions& checkpoint, bool narrow) {
  checkpoint.method = "smoothquant";
  checkpoint.type = "int8-g128";
  checkpoint.fold = smoothing_fold(std::nullopt);
  if (!narrow) return;
  put_first(checkpoint,
            R"(^(token_embedding|head|layers\.[0-9]+\.(experts\.[0-9]+\.|shared\.)?down)$)",
            "int8-g32");
}

void apply_four_bits(CheckpointOptions& checkpoint, bool narrow) {
  checkpoint.method = "gptq+";
  checkpoint.type = narrow ? "int4-g64" : "int4-g128";
}

// Gathering all statistics first is as accurate here as true-sequential, in a fifth of the time. In
// narrow models, tables are a large part of the file and 4 bits cost most in v and down.
void apply_q4(CheckpointOptions& checkpoint, bool narrow) {
  checkpoint.method = "gptq+";
  checkpoint.type = narrow ? "q4_k" : "int4-g128";
  checkpoint.fold = awq_scales_fold();
  checkpoint.true_sequential = false;
  if (!narrow) return;
  put_first(checkpoint, R"(^(token_embedding|head)$)", "q6_k");
  put_first(checkpoint, R"(^layers\.[0-9]+\.(v|(experts\.[0-9]+\.|shared\.)?down)$)", "q5_k");
}

void apply_q4_small(CheckpointOptions& checkpoint, bool) {
  checkpoint.method = "gptq+";
  checkpoint.type = "q4_k";
  checkpoint.fold = awq_scales_fold();
  checkpoint.true_sequential = false;
  put_first(checkpoint, R"(^(token_embedding|head)$)", "q4_k");
}

void apply_zeroquant_w48(CheckpointOptions& checkpoint, bool) {
  checkpoint.method = "zeroquant";
  checkpoint.type = "int8-g128";
  checkpoint.act = ActChoice::row;
  put_first(checkpoint, R"(^layers\.[0-9]+\.(experts\.[0-9]+\.|shared\.)?(gate|up|down)$)",
            "int4-g128");
}

// A plan mixes units of different bit widths, so that neither folds nor gathered input statistics
// may depend on the bit width.
void apply_auto(CheckpointOptions& checkpoint, bool narrow) {
  apply_four_bits(checkpoint, narrow);
  checkpoint.fold = smoothing_fold(kSharedAlpha);
  checkpoint.true_sequential = false;
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
     .summary = "2, 3, 4 or 8 bits for each layer by measured KL, by default 4.25 bits per weight "
                "on average",
     .kl_limit = 0.05,
     .advice = "more bits per weight, recipe q4, or recipe q8",
     .apply = apply_auto,
     .searches = true},
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

void apply_recipe(const Recipe& recipe, const ModelConfig& config, CheckpointOptions& checkpoint) {
  recipe.apply(checkpoint, config.width < kNarrowWidth);
}

}  // namespace leq
