// What a comparison is asked for.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/candidate.h"
#include "eval/protocol.h"
#include "quantize/calibration/calibration_data.h"

namespace leq {

// How far each part goes: the numbers of a whole comparison and of a quick one.
struct CompareSizes {
  std::int64_t layer_windows = 4, layer_tokens = 256;  // of errors by layer
  int bench_runs = 5;                                  // the median counts
  std::int64_t prompt = 512, generated = 64;
  std::vector<std::int64_t> calibration_windows = {1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<std::int64_t> contexts = {128, 256, 512, 1024, 2048, 8192, 32768};
  std::int64_t context_tokens = 4096;  // of each point, at least one window
  std::vector<std::int64_t> sequences = {1, 2, 4, 8, 16};
  std::int64_t questions = 0;  // of each file of choices; 0: all
};
CompareSizes quick_sizes();

// The parts of a comparison; files and their quality are always there.
inline constexpr std::array<std::string_view, 4> kCompareParts = {"speed", "layers", "inside",
                                                                  "curves"};

// What a clock measures, which another load of the machine changes: seconds of quantization;
// speeds.
inline constexpr std::array<std::string_view, 2> kAgainParts = {"setup", "speed"};

struct CompareJob {
  std::filesystem::path checkpoint;  // folder, or GGUF file
  std::filesystem::path output;      // folder of the report
  std::vector<Candidate> candidates;
  std::filesystem::path text;
  ProtocolRequest protocol = {};
  CalibrationRequest calibration = {};
  std::vector<std::filesystem::path> choices = {};  // files of questions
  CompareSizes sizes = {};
  std::vector<std::string> parts = {kCompareParts.begin(), kCompareParts.end()};
  // Kept results of these that are measured again: kAgainParts.
  std::vector<std::string> again = {};
  bool quick = false;
  bool keep_files = false;  // the quantized files stay in the folder
  int threads = 0;
  std::function<bool()> stop = [] { return false; };
  std::function<void(const std::string& line)> say = [](const auto&) {};
  // `step` begins; `done` of `total` steps are finished.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& step)> progress =
      [](auto, auto, const auto&) {};
};

}  // namespace leq
