// From a checkpoint folder to a quantized file that was judged, in one call: what leq-quantize
// does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/gate.h"
#include "recipes/quantize_by_search.h"

namespace leq {

enum class GateMode : std::uint8_t {
  none,
  distance,       // where it takes less than kDistanceSeconds
  gate,           // where there is disk and memory for it
  gate_at_a_cost  // as a gate, also where memory is short and files are read again and again
};
inline constexpr double kDistanceSeconds = 60;

struct QuantizeJob {
  std::filesystem::path folder;  // of the checkpoint; or its GGUF file
  std::filesystem::path output;
  CheckpointOptions checkpoint;    // with what apply_recipe sets
  bool keeps_types = false;        // as convert/import.h's keep_types
  bool fix_mistral_regex = false;  // as convert/mistral_pattern.h's fix_mistral_pattern
  const Recipe* recipe = nullptr;  // whose limit the gate holds
  // checkpoint.calibration.samples and the gate's windows by measured speed
  bool fit_windows = false;
  // With fit_windows: seconds that calibration and the choice of folds and codes may take; else
  // kCalibrationSeconds for the calibration alone.
  std::optional<double> seconds = {};
  std::optional<SearchedBits> search = {};
  GateMode gate_mode = GateMode::none;
  GateText judged_by = {};
  std::vector<std::filesystem::path> texts = {};  // files that texts came from: never written

  // `work`: "quantize", "candidates", "search", "gate"; `note` may be empty.
  std::function<void(std::string_view work, std::int64_t done, std::int64_t total,
                     const std::string& note)>
      progress = [](auto, auto, auto, const auto&) {};
  // The file is there and will be judged next.
  std::function<void(const CheckpointResult&)> written = [](const auto&) {};
  std::function<void(const MixedSearchResult&)> searched = [](const auto&) {};
};

// Throws Error where the job is one rank's work, and there are more.
void require_divisible(const QuantizeJob& job, int ranks);

// Lines about calibration, gate and distance, and why one of them is left out, go to
// job.checkpoint.say. Throws Error as import_hf, quantize_imported and quantize_by_search do; the
// file is complete where the error came after `written`. Returns what the gate found. Of several
// ranks (job.checkpoint.ranks) all call it; the leader alone writes and judges.
std::optional<GateResult> run_job(const QuantizeJob& job);

struct TimePlan {
  std::int64_t windows = 0, length = 0;  // of calibration text
  double seconds_of_window = 0, choosing_seconds = 0;
  double budget = 0;  // seconds
};
// "calibration 32 windows of 512 tokens (2.10 s each), then folds and codes: about 134 s of 240 s;
//              and so many samples make the same file on any machine"
std::string time_report(const TimePlan& plan);

}  // namespace leq
