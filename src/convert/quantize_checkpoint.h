// A Hugging Face folder to a .leq file in one call: what leq-quantize does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "quantize/quantize_model.h"

namespace leq {

struct CheckpointOptions {
  std::string type = "int8";  // a scheme's name
  ActChoice act = ActChoice::automatic;
  int threads = 0;  // 0 = one for each usable core
};

struct CheckpointResult {
  std::string description;  // of the source, for people
  std::uint64_t file_bytes = 0;
  std::int64_t parameters = 0;
  double bits_per_weight = 0;  // all tensor bytes x 8 / parameters
  double worst_error = 0;      // relative squared error of one tensor's weights
  std::string worst_tensor;
};

// Reads tensor by tensor and writes `output` complete or not at all. `progress(done, total)` counts
// tensors. Throws Error as import_hf and write_tensors do.
CheckpointResult quantize_checkpoint(
    const std::filesystem::path& folder, const std::filesystem::path& output,
    const CheckpointOptions& options,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
