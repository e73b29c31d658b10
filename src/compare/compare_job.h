// The request for a comparison.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/candidate.h"
#include "eval/perplexity.h"
#include "quantize/calibration/calibration_data.h"

namespace leq {

// The extent of each part of a comparison, full or quick.
struct CompareSizes {
  std::int64_t layer_windows = 4, layer_tokens = 256;  // sizes for errors by layer
  int bench_runs = 5;                                  // the median is reported
  std::int64_t prompt = 512, generated = 64;
  std::vector<std::int64_t> calibration_windows = {1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<std::int64_t> contexts = {128, 256, 512, 1024, 2048, 8192, 32768};
  std::int64_t context_tokens = 4096;  // tokens for each point, at least one window
  std::vector<std::int64_t> sequences = {1, 2, 4, 8, 16};
  std::int64_t questions = 0;  // questions per file; 0: all
};
CompareSizes quick_sizes();

// The optional parts of a comparison; files and their quality are always measured.
inline constexpr std::array<std::string_view, 4> kCompareParts = {"speed", "layers", "inside",
                                                                  "curves"};

// Results that are times and so depend on the machine's load: duration of quantization;
// speeds.
inline constexpr std::array<std::string_view, 2> kAgainParts = {"setup", "speed"};

struct CompareJob {
  std::filesystem::path checkpoint;  // a folder or a GGUF file
  std::filesystem::path output;      // the report's folder
  std::vector<Candidate> candidates;
  std::filesystem::path text;
  ProtocolRequest protocol = {};
  CalibrationRequest calibration = {};
  std::vector<std::filesystem::path> choices = {};  // files of questions
  CompareSizes sizes = {};
  std::vector<std::string> parts = {kCompareParts.begin(), kCompareParts.end()};
  // Members of kAgainParts to measure again although their results are stored.
  std::vector<std::string> again = {};
  bool quick = false;
  bool keep_files = false;  // keep the quantized files in the folder
  int threads = 0;
  std::function<bool()> stop = [] { return false; };
  std::function<void(const std::string& line)> say = [](const auto&) {};
  // Called before each step; `done` of `total` steps are finished.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& step)> progress =
      [](auto, auto, const auto&) {};
};

}  // namespace leq
