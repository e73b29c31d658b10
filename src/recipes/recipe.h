// Recipes: settings that have proved themselves, by name. Each ends with a gate, the limit of KL
// divergence from the unquantized model that it is expected to keep.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "convert/quantize_checkpoint.h"

namespace leq {

struct Recipe {
  std::string name;
  std::string summary;
  double kl_limit = 0;  // of the gate, nats
  std::string advice;   // where the gate is not passed
  // Method, type and folds; `narrow` models have less to average over and large tables.
  void (*apply)(CheckpointOptions& checkpoint, bool narrow) = nullptr;
  bool searches = false;        // bits for each unit
  bool few_windows_do = false;  // of calibration text: as many as fit into a few minutes
};

inline constexpr std::string_view kDefaultRecipe = "q8";
inline constexpr double kAutoBits = 4.25;  // a weight of recipe auto

std::span<const Recipe> recipes();
// Throws Error listing the names where there is no such recipe.
const Recipe& require_recipe(std::string_view name);

// Sets method, type and folds for a checkpoint of this configuration.
void apply_recipe(const Recipe& recipe, const ModelConfig& config, CheckpointOptions& checkpoint);

}  // namespace leq
