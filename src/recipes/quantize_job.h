// Quantizes a checkpoint folder and evaluates the file in one call: the work of leq-quantize,
// without its command line.
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
  distance,       // measured where it takes less than kDistanceSeconds
  gate,           // where disk and memory are sufficient
  gate_at_a_cost  // a gate also where memory is short and files are read repeatedly
};
inline constexpr double kDistanceSeconds = 60;

struct QuantizeJob {
  std::filesystem::path folder;  // checkpoint folder, or its GGUF file
  std::filesystem::path output;
  CheckpointOptions checkpoint;    // including the settings of apply_recipe
  bool keeps_types = false;        // as convert/import.h's keep_types
  bool fix_mistral_regex = false;  // as convert/mistral_pattern.h's fix_mistral_pattern
  const Recipe* recipe = nullptr;  // its limit is the gate's
  // Derives checkpoint.calibration.samples and the gate's windows from measured speed.
  bool fit_windows = false;
  // With fit_windows: time limit in seconds for calibration and the choice of folds and codes;
  // without it kCalibrationSeconds for the calibration alone.
  std::optional<double> seconds = {};
  std::optional<SearchedBits> search = {};
  GateMode gate_mode = GateMode::none;
  GateText judged_by = {};
  std::vector<std::filesystem::path> texts = {};  // input files of the texts: never overwritten

  // `work`: "quantize", "candidates", "search", "gate"; `note` may be empty.
  std::function<void(std::string_view work, std::int64_t done, std::int64_t total,
                     const std::string& note)>
      progress = [](auto, auto, auto, const auto&) {};
  // Called once the file is complete, before it is evaluated.
  std::function<void(const CheckpointResult&)> written = [](const auto&) {};
  std::function<void(const MixedSearchResult&)> searched = [](const auto&) {};
};

// Throws Error where the job can only run on one rank, and there are more.
void require_divisible(const QuantizeJob& job, int ranks);

// Reports about calibration, gate and distance, and why one of them is left out, go to
// job.checkpoint.say. Throws Error as import_hf, quantize_imported and quantize_by_search do; the
// file is complete where the error came after `written`. Returns the result of the gate. With
// several ranks (job.checkpoint.ranks) all call it; only the leader writes and evaluates.
std::optional<GateResult> run_job(const QuantizeJob& job);

struct TimePlan {
  std::int64_t windows = 0, length = 0;  // of the calibration text
  double seconds_of_window = 0, choosing_seconds = 0;
  double budget = 0;  // seconds
};
// "calibration 32 windows of 512 tokens (2.10 s each), then folds and codes: about 134 s of 240 s;
//              and so many samples make the same file on any machine"
std::string time_report(const TimePlan& plan);

}  // namespace leq
