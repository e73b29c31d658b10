// How much text to calibrate on and to judge by fits into the time that a user of defaults is
// willing to wait.
#pragma once

#include <cstdint>

#include "convert/hf_import.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/pipeline/quantize_blocks.h"
#include "recipes/gate.h"
#include "recipes/recipe.h"

namespace leq {

inline constexpr double kCalibrationSeconds = 180;  // for its forward passes, unless told
inline constexpr std::int64_t kTimedWindows = 3;    // the first warms up
inline constexpr double kGateSeconds = 90;          // for those of both models

struct WindowBounds {
  std::int64_t fewest, most;  // the fewest times a power of two
};
// What a few windows tell of the largest inputs is nearly all that many tell: KL divergence of q8
// on the trained models differs by less than its error between 8 windows of 512 tokens and 128.
inline constexpr WindowBounds kCalibrationWindows = {8, 32};
inline constexpr WindowBounds kToldCalibrationWindows = {2, 128};  // where a user says how long
// A window's mean KL is that of hundreds of tokens, and the gate prints its error.
inline constexpr WindowBounds kFittedGateWindows = {kDistanceWindows, kGateWindows};

// The fewest windows, doubled for as long as they take at most `seconds` and are not the most.
// Steps of two: a machine that is a little slower today writes the same file. `seconds_of_window`
// <= 0 (too fast to be measured): the most.
std::int64_t windows_within(double seconds, double seconds_of_window, WindowBounds bounds);

// Seconds of choosing folds and codes, by count: on a machine that takes `seconds_of_window` for a
// window of `length` tokens through all blocks.
double choosing_seconds(const ModelConfig& config, const ChoosingWork& work,
                        double seconds_of_window, std::int64_t length);

// Seconds that one window takes through all unquantized blocks on this machine: one block, timed
// with all windows of `data`, the fastest of which counts, times the number of blocks. Throws Error
// as plan_calibration does where options.max_ram is too little, and where options.stop is true.
double measure_window_seconds(const ImportedModel& model, const CalibrationData& data,
                              const RunOptions& options);

}  // namespace leq
