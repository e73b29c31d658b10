// Finds how many windows of calibration and evaluation text fit into the time that a run with
// default settings may take.
#pragma once

#include <cstdint>

#include "convert/hf_import.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/run/quantize_blocks.h"
#include "quantize/run/gate.h"
#include "quantize/run/recipe.h"

namespace leq {

inline constexpr double kCalibrationSeconds = 180;  // default for the forward passes
inline constexpr std::int64_t kTimedWindows = 3;    // including one for warm-up
inline constexpr double kGateSeconds = 90;          // for the forward passes of both models

struct WindowBounds {
  std::int64_t fewest, most;  // counts are `fewest` times a power of two
};
// Few windows find the largest inputs nearly as well as many: with q8 the KL divergences of the
// test models for 8 and for 128 windows of 512 tokens differ by less than their standard error.
inline constexpr WindowBounds kCalibrationWindows = {8, 32};
inline constexpr WindowBounds kBudgetedCalibrationWindows = {2,
                                                             128};  // used if the user sets a time
// Each window's KL is a mean over hundreds of tokens, and the gate prints its standard error.
inline constexpr WindowBounds kFittedGateWindows = {kDistanceWindows, kGateWindows};

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
                              const RunOptions& options);

}  // namespace leq
