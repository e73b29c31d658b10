// How much calibration text fits into the time that a user of defaults is willing to wait.
#pragma once

#include <cstdint>

#include "convert/hf_import.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/pipeline/quantize_blocks.h"

namespace leq {

inline constexpr double kCalibrationSeconds = 180;  // for the forward passes
inline constexpr std::int64_t kTimedWindows = 3;    // the first warms up
// What a few windows tell of the largest inputs is nearly all that many tell: KL divergence of q8
// on the trained models differs by less than its error between 8 windows of 512 tokens and 128.
inline constexpr std::int64_t kFewestWindows = 8;
inline constexpr std::int64_t kMostWindows = 32;

// The largest power of two within both bounds whose windows take at most `seconds`, kFewestWindows
// where even those take longer. Steps of two: a machine that is a little slower today writes the
// same file. `seconds_of_window` <= 0 (too fast to be measured): kMostWindows.
std::int64_t windows_within(double seconds, double seconds_of_window);

// Seconds that one window takes through all unquantized blocks on this machine: one block, timed
// with all windows of `data`, the fastest of which counts, times the number of blocks. Throws Error
// as plan_calibration does where options.max_ram is too little, and where options.stop is true.
double measure_window_seconds(const ImportedModel& model, const CalibrationData& data,
                              const RunOptions& options);

}  // namespace leq
