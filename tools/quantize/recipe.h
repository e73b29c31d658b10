// leq-quantize --recipe: settings that have proved themselves, and the gate that every recipe ends
// with: KL divergence from the unquantized model on text that it was not calibrated on.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convert/quantize_checkpoint.h"
#include "eval/divergence.h"
#include "tools/common/options.h"

namespace leq {

struct Recipe {
  std::string name;
  std::string summary;
  double kl_limit = 0;  // of the gate, nats
  std::string advice;   // where the gate is not passed
  // Method, type and folds; `narrow` models have less to average over and large tables.
  void (*apply)(CheckpointOptions& checkpoint, bool narrow) = nullptr;
  bool searches = false;  // bits for each unit, as --search
};
// Throws Error listing the names where there is no such recipe.
const Recipe& require_recipe(std::string_view name);

std::vector<Option> recipe_flags();

// Method, type and folds of the recipe that the flags name. Throws Error where other flags say the
// same things.
void apply_recipe(const Options& options, const std::filesystem::path& folder,
                  CheckpointOptions& checkpoint);

// A text to judge by.
struct GateText {
  std::string text;
  std::string name;  // for people
};
// Of --heldout, else the built-in one: read before the work begins, which may take hours.
GateText gate_text(const Options& options);

struct GateResult {
  DivergenceResult divergence;
  std::string text;  // its name for people
  std::int64_t window = 0;
};

// Compares `output` with the unquantized model in `base` and writes the numbers into its
// provenance.
GateResult run_gate(const GateText& text, const std::filesystem::path& base,
                    const std::filesystem::path& output, const CheckpointOptions& checkpoint,
                    const std::function<void(std::int64_t, std::int64_t)>& progress);

// "gate        KL 0.00085 +- 0.00003 nats ..., limit 0.005: passed"
std::string gate_report(const GateResult& gate, const Recipe* recipe);

}  // namespace leq
