// Steps of quantize_checkpoint besides writing the file: the number of windows that fit into a
// time, the search for bits, and the gate. A gate uses up to 16 windows of a text that was not used
// for calibration, is compared with a recipe's limit and is stored in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "quantize/run/quantize.h"

namespace leq {

inline constexpr double kCalibrationSeconds = 180;  // default for the forward passes
inline constexpr std::int64_t kTimedWindows = 3;    // including one for warm-up
inline constexpr double kGateSeconds = 90;          // for the forward passes of both models
inline constexpr std::int64_t kGateWindows = 16;
inline constexpr std::int64_t kFewestGateTokens = 16;  // per window

struct WindowBounds {
  std::int64_t fewest, most;  // counts are `fewest` times a power of two
};
// Few windows find the largest inputs nearly as well as many: with q8 the KL divergences of the
// test models for 8 and for 128 windows of 512 tokens differ by less than their standard error.
inline constexpr WindowBounds kCalibrationWindows = {8, 32};
// Used if the user sets a time.
inline constexpr WindowBounds kBudgetedCalibrationWindows = {2, 128};
// Each window's KL is a mean over hundreds of tokens, and the gate prints its standard error.
inline constexpr WindowBounds kFittedGateWindows = {2, kGateWindows};

// The number of windows: bounds.fewest, doubled as long as they take at most `seconds` and there
// are at most bounds.most. Powers of two, so that slightly slower machines write the same file. If
// `seconds_of_window` <= 0 (too fast to measure): bounds.most.
std::int64_t windows_within(double seconds, double seconds_of_window, WindowBounds bounds);

// Estimated seconds for choosing folds and codes, derived from operation counts, on a machine that
// takes `seconds_of_window` to run a window of `length` tokens through all blocks.
double choosing_seconds(const ModelConfig& config, const ChoosingWork& work,
                        double seconds_of_window, std::int64_t length);

// Seconds that one window takes through all unquantized blocks on this machine: the fastest time of
// one block over all windows of `data`, times the number of blocks. Throws Error as
// plan_calibration does if options.max_ram is too small, and if options.stop returns true.
double measure_window_seconds(const ImportedModel& model, const CalibrationData& data,
                              const QuantizeOptions& options);

// Throws Error if no plan can meet the target of options.search, or its log cannot be read or
// written. These checks need no computation; quantize_by_search calls this function.
void check_search(const ImportedModel& model, const QuantizeOptions& options);

// Quantizes at int8 and at 4, 3 and 2 bits; these candidate files are in OUTPUT.search while it
// runs. Searches the bits of each unit and writes `output`. `base` is the unquantized model. With
// options.resume, uses files that an interrupted run has left there.
MixedSearchResult quantize_by_search(const ImportedModel& model,
                                     const std::filesystem::path& output,
                                     const QuantizeOptions& options,
                                     const std::filesystem::path& base);

// Throws Error if the text has too few tokens, or the model's context is too small, for a gate.
void check_gate_text(const GateText& text, std::int64_t tokens, std::int64_t context);

// Compares `output`, with the KV cache type that it was made for, with the unquantized model in
// `base` on at most the given number of windows. Throws Error if the text or context has fewer than
// kFewestGateTokens, and if options.stop returns true.
GateResult compare_with_base(const std::filesystem::path& base, const std::filesystem::path& output,
                             std::int64_t windows, const QuantizeOptions& options);

// Writes the result into the provenance of `output`.
void keep_gate(const GateResult& gate, const GateText& text, const std::filesystem::path& output);

// For example "gate        KL 0.00085 +- 0.00003 nats ..., limit 0.005: passed" (limit: recipe's).
std::string gate_report(const GateResult& gate, const Recipe* recipe);
// Like gate_report above, with a limit that the user has set instead of a recipe's limit.
std::string gate_report(const GateResult& gate, double max_kl);

// Disk space for the unquantized model, and how much is available, in bytes.
struct BaseSpace {
  std::uint64_t needed = 0, available = 0;
};
BaseSpace base_space(const ImportedModel& model, const std::filesystem::path& output);
// For example "15.2 GB of disk are needed, 7.9 GB are there"; empty if there is enough.
std::string shortage(const BaseSpace& space);

}  // namespace leq
