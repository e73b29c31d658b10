// Recipes: named, tested settings. Each ends with a gate, the limit of KL divergence from the
// unquantized model that it is expected to meet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "convert/quantize_checkpoint.h"

namespace leq {

// Cost of choosing folds and codes beside the forward passes of calibration: multiply-adds (and
// work of equal time) for each weight [N][K], fitted to measured times.
struct ChoosingWork {
  double squares = 0;           // times N K^2
  double searched_squares = 0;  // times min(N, searched_rows) K^2
  double searched_tokens = 0;   // times min(N, searched_rows) K
  std::int64_t searched_rows = 0;
};

struct Recipe {
  std::string name;
  std::string summary;
  double kl_limit = 0;  // limit of the gate, nats
  std::string advice;   // shown where the gate is not passed
  // Sets method, type and folds; `narrow` models have less to average over and large tables.
  void (*apply)(CheckpointOptions& checkpoint, bool narrow) = nullptr;
  bool searches = false;        // for the bit width of each unit
  bool few_windows_suffice = false;  // few calibration windows suffice: as many as fit into minutes
  ChoosingWork work = {};       // set where few_windows_suffice
};

inline constexpr std::string_view kDefaultRecipe = "q8";
inline constexpr double kAutoBits = 4.25;  // bits per weight of recipe auto

std::span<const Recipe> recipes();
// Throws Error listing the names where there is no such recipe.
const Recipe& require_recipe(std::string_view name);

// Sets method, type and folds for a checkpoint of this configuration.
void apply_recipe(const Recipe& recipe, const ModelConfig& config, CheckpointOptions& checkpoint);

}  // namespace leq
