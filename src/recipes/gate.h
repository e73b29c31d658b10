// The quality loss of a quantized file: KL divergence from the unquantized model on a text that it
// was not calibrated on. A gate uses up to 16 windows, is compared with a recipe's limit and is
// stored in the file; a distance uses two windows and is only reported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "convert/quantize_checkpoint.h"
#include "eval/divergence.h"
#include "model/open_model.h"
#include "recipes/recipe.h"

namespace leq {

inline constexpr std::int64_t kGateWindows = 16;
inline constexpr std::int64_t kDistanceWindows = 2;
inline constexpr std::int64_t kFewestGateTokens = 16;  // in a window

// The evaluation text of a gate.
struct GateText {
  std::string text;
  std::string name;  // shown to users
};
GateText built_in_gate_text();

// Throws Error where this many tokens of the text, or the model's context, are too few for a gate.
void check_gate_text(const GateText& text, std::int64_t tokens, std::int64_t context);

struct GateResult {
  DivergenceResult divergence;
  std::string text;  // name of the text, shown to users
  std::int64_t window = 0;
  std::optional<KvEvidence> cache = {};  // the cache that the file was made for and measured with
};

// Compares `output`, with the KV cache type that it was made for, with the unquantized model in
// `base` on at most the given number of windows. Throws Error where text or context give less than
// kFewestGateTokens, and where options.stop is true.
GateResult compare_with_base(const GateText& text, const std::filesystem::path& base,
                             const std::filesystem::path& output, std::int64_t windows,
                             const RunOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

// Writes the numbers into the provenance of `output`.
void keep_gate(const GateResult& gate, const GateText& text, const std::filesystem::path& output);

// "gate        KL 0.00085 +- 0.00003 nats ..., limit 0.005: passed"; without a recipe no limit.
std::string gate_report(const GateResult& gate, const Recipe* recipe);
// The same with a limit set by the user.
std::string gate_report(const GateResult& gate, double max_kl);
// "distance    KL 2.08172 nats from the checkpoint ..."
std::string distance_report(const GateResult& distance);

// Resources that a comparison needs and that are available, in bytes.
struct GateResources {
  std::uint64_t disk_needed = 0, disk_free = 0;
  std::uint64_t memory_needed = 0, memory_free = 0;
};
GateResources gate_resources(const ImportedModel& model, const std::filesystem::path& output,
                             std::uint64_t max_ram);
// "15.2 GB of memory are needed, 7.9 GB are there"; empty where there is enough.
std::string lack_of_disk(const GateResources& resources);
std::string lack_of_memory(const GateResources& resources);

// Estimated seconds of a comparison, from those of one window through the unquantized blocks: the
// forward passes of two models, and writing the base file.
double comparison_seconds(double seconds_of_window, std::int64_t windows, std::uint64_t base_bytes);

}  // namespace leq
