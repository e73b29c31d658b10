// Recipes are named, tested settings. Each has a gate: the limit of the KL divergence from the
// unquantized model that it is expected to meet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "quantize/run/quantize_checkpoint.h"

namespace leq {

// Cost of choosing folds and codes, without the forward passes of calibration: multiply-adds (and
// other work as an equivalent number) for each weight [N][K], fitted to measured times.
struct ChoosingWork {
  double squares = 0;           // factor on N K^2
  double searched_squares = 0;  // factor on min(N, searched_rows) K^2
  double searched_tokens = 0;   // factor on min(N, searched_rows) K
  std::int64_t searched_rows = 0;
};

struct Recipe {
  std::string name;
  std::string summary;
  double kl_limit = 0;  // limit of the gate in nats
  std::string advice;   // shown if the gate is not passed
  // Sets method, type and folds. In `narrow` models errors average out less and tables are large.
  void (*apply)(CheckpointOptions& checkpoint, bool narrow) = nullptr;
  bool searches = false;             // whether the bit width of each unit is searched for
  bool few_windows_suffice = false;  // calibration uses only as many windows as fit into minutes
  ChoosingWork work = {};            // set if few_windows_suffice
};

inline constexpr std::string_view kDefaultRecipe = "q8";
inline constexpr double kAutoBits = 4.25;  // bits per weight of recipe auto

std::span<const Recipe> recipes();
// Throws Error listing the names if there is no such recipe.
const Recipe& require_recipe(std::string_view name);

// Sets method, type and folds for a checkpoint with this configuration.
void apply_recipe(const Recipe& recipe, const ModelConfig& config, CheckpointOptions& checkpoint);

}  // namespace leq
