// Quality loss of a quantized file: its KL divergence from the unquantized model on a text that was
// not used for calibration. A gate uses up to 16 windows, is compared with a recipe's limit and is
// stored in the file. A distance uses two windows and is only reported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "quantize/run/quantize_checkpoint.h"
#include "eval/divergence.h"
#include "model/open_model.h"
#include "quantize/run/recipe.h"

namespace leq {

inline constexpr std::int64_t kGateWindows = 16;
inline constexpr std::int64_t kDistanceWindows = 2;
inline constexpr std::int64_t kFewestGateTokens = 16;  // per window

// The evaluation text of a gate.
struct GateText {
  std::string text;
  std::string name;  // shown to users
};
GateText built_in_gate_text();

// Throws Error if the text has too few tokens, or the model's context is too small, for a gate.
void check_gate_text(const GateText& text, std::int64_t tokens, std::int64_t context);

struct GateResult {
  DivergenceResult divergence;
  std::string text;  // name of the text, shown to users
  std::int64_t window = 0;
  std::optional<KvEvidence> cache = {};  // the file's KV cache types, with which it was measured
};

// Compares `output`, with the KV cache type that it was made for, with the unquantized model in
// `base` on at most the given number of windows. Throws Error if the text or context has fewer than
// kFewestGateTokens, and if options.stop returns true.
GateResult compare_with_base(const GateText& text, const std::filesystem::path& base,
                             const std::filesystem::path& output, std::int64_t windows,
                             const RunOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

// Writes the result into the provenance of `output`.
void keep_gate(const GateResult& gate, const GateText& text, const std::filesystem::path& output);

// For example "gate        KL 0.00085 +- 0.00003 nats ..., limit 0.005: passed" (limit: recipe's).
std::string gate_report(const GateResult& gate, const Recipe* recipe);
// Like gate_report above, with a limit that the user has set instead of a recipe's limit.
std::string gate_report(const GateResult& gate, double max_kl);
// A text such as "distance    KL 2.08172 nats from the checkpoint ...".
std::string distance_report(const GateResult& distance);

// Memory and disk that a comparison needs, and how much is available, in bytes.
struct GateResources {
  std::uint64_t disk_needed = 0, disk_free = 0;
  std::uint64_t memory_needed = 0, memory_free = 0;
};
GateResources gate_resources(const ImportedModel& model, const std::filesystem::path& output,
                             std::uint64_t max_ram);
// For example "15.2 GB of memory are needed, 7.9 GB are there"; empty if there is enough.
std::string disk_shortage(const GateResources& resources);
std::string memory_shortage(const GateResources& resources);

// Estimated seconds of a comparison, derived from the time of one window through the unquantized
// blocks: the forward passes of two models, and writing the base file.
double comparison_seconds(double seconds_of_window, std::int64_t windows, std::uint64_t base_bytes);

}  // namespace leq
