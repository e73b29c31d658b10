// Quantizes a checkpoint folder and evaluates the file in one call: leq-quantize without its
// command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/run/gate.h"
#include "quantize/run/quantize_by_search.h"

namespace leq {

enum class GateMode : std::uint8_t {
  none,
  distance,       // measured if it takes less than kDistanceSeconds
  gate,           // measured if there is enough disk and memory
  gate_at_a_cost  // measured even if files must be read repeatedly, for lack of memory
};
inline constexpr double kDistanceSeconds = 60;

struct QuantizeJob {
  std::filesystem::path folder;  // checkpoint folder, or the GGUF file in it
  std::filesystem::path output;
  CheckpointOptions checkpoint;    // including the settings of apply_recipe
  bool keeps_types = false;        // see keep_types in convert/import.h
  bool fix_mistral_regex = false;  // see fix_mistral_pattern in convert/hf_tokenizer.h
  const Recipe* recipe = nullptr;  // its limit is used for the gate
  // Derives checkpoint.calibration.samples and the number of gate windows from measured speed.
  bool fit_windows = false;
  // With fit_windows: time limit in seconds for calibration and the choice of folds and codes. If
  // absent, the calibration alone is limited to kCalibrationSeconds.
  std::optional<double> seconds = {};
  std::optional<SearchedBits> search = {};
  GateMode gate_mode = GateMode::none;
  GateText judged_by = {};
  std::vector<std::filesystem::path> texts = {};  // input files that must not be overwritten

  // `work` is "quantize", "candidates", "search" or "gate"; `note` may be empty.
  std::function<void(std::string_view work, std::int64_t done, std::int64_t total,
                     const std::string& note)>
      progress = [](auto, auto, auto, const auto&) {};
  // Called when the file is complete, before it is evaluated.
  std::function<void(const CheckpointResult&)> written = [](const auto&) {};
  std::function<void(const MixedSearchResult&)> searched = [](const auto&) {};
};

// Throws Error if there are several ranks and the job can only run on one.
void require_divisible(const QuantizeJob& job, int ranks);

// Messages about calibration, gate and distance, and why one of them is left out, are passed to
// job.checkpoint.say. Throws Error as import_hf, quantize_imported and quantize_by_search do; if it
// throws after calling `written`, the file is complete. Returns the result of the gate. With
// several ranks (job.checkpoint.ranks) all call it; only the leader writes and evaluates.
std::optional<GateResult> run_job(const QuantizeJob& job);

struct TimePlan {
  std::int64_t windows = 0, length = 0;  // number and length of calibration windows
  double seconds_of_window = 0, choosing_seconds = 0;
  double budget = 0;  // time limit in seconds
};
// "calibration 32 windows of 512 tokens (2.10 s each), then folds and codes: about 134 s of 240 s;
//              and so many samples make the same file on any machine"
std::string time_report(const TimePlan& plan);

}  // namespace leq
