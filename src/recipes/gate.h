// What a quantized file costs: KL divergence from the unquantized model on a text that it was not
// calibrated on. A gate takes up to 16 windows, holds them against a recipe's limit and is kept in
// the file; a distance takes two, for a line.
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
inline constexpr std::int64_t kFewestGateTokens = 16;  // of a window

// A text to judge by.
struct GateText {
  std::string text;
  std::string name;  // for people
};
GateText built_in_gate_text();

// Throws Error where so many tokens of the text, or the model's context, are too few to judge by.
void check_gate_text(const GateText& text, std::int64_t tokens, std::int64_t context);

struct GateResult {
  DivergenceResult divergence;
  std::string text;  // its name for people
  std::int64_t window = 0;
  std::optional<KvEvidence> cache = {};  // that the file was made for, and was measured with
};

// Compares `output`, with the cache that it was made for, with the unquantized model in `base` on
// at most so many windows. Throws Error where text or context give less than kFewestGateTokens, and
// where options.stop is true.
GateResult compare_with_base(const GateText& text, const std::filesystem::path& base,
                             const std::filesystem::path& output, std::int64_t windows,
                             const RunOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

// Writes the numbers into the provenance of `output`.
void keep_gate(const GateResult& gate, const GateText& text, const std::filesystem::path& output);

// "gate        KL 0.00085 +- 0.00003 nats ..., limit 0.005: passed"; without a recipe no limit.
std::string gate_report(const GateResult& gate, const Recipe* recipe);
// The same with a limit of the user's own.
std::string gate_report(const GateResult& gate, double max_kl);
// "distance    KL 2.08172 nats from the checkpoint ..."
std::string distance_report(const GateResult& distance);

// What a comparison takes and what there is, in bytes.
struct GateResources {
  std::uint64_t disk_needed = 0, disk_free = 0;
  std::uint64_t memory_needed = 0, memory_free = 0;
};
GateResources gate_resources(const ImportedModel& model, const std::filesystem::path& output,
                             std::uint64_t max_ram);
// "15.2 GB of memory are needed, 7.9 GB are there"; empty where there is room.
std::string lack_of_disk(const GateResources& resources);
std::string lack_of_memory(const GateResources& resources);

// Seconds of a comparison, from those of one window through the unquantized blocks: two models, and
// the file of the base.
double comparison_seconds(double seconds_of_window, std::int64_t windows, std::uint64_t base_bytes);

}  // namespace leq
