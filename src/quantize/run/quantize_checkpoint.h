// Converts a Hugging Face folder to a .leq file in one call: the work of leq-quantize.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/imported_model.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/run/quantize_blocks.h"

namespace leq {

struct CheckpointOptions : RunOptions {
  std::string type = "int8";  // name of a scheme
  ActChoice act = ActChoice::automatic;
  std::string method = "absmax";  // one of checkpoint_methods()
  MethodOptions method_options = {};
  std::vector<TypeOverride> overrides = {};
  // If set, replaces the plan made from type, act, method and overrides (search, recipe).
  TensorPlanner plan = {};
  CalibrationRequest calibration = {};
  // Without calibration too, finished blocks are kept for a run that resumes this one. Takes the
  // space of the blocks twice.
  bool keep_blocks = false;
};

struct CheckpointResult {
  std::string description;  // describes the source, for users
  std::uint64_t file_bytes = 0;
  std::int64_t parameters = 0;
  double bits_per_weight = 0;  // all tensor bytes x 8 / parameters
  double worst_error = 0;      // largest relative squared error of a tensor's weights
  std::string worst_tensor;
  double worst_loss = 0;  // the same error of a tensor's outputs on the calibration text, if any
  std::string worst_loss_tensor;
};

// A value of CheckpointOptions::method: the rounding method, and the type that is its
// default.
struct CheckpointMethod {
  std::string name;
  std::string summary;
  std::string type;
};
std::vector<CheckpointMethod> checkpoint_methods();

// The identity by which an interrupted run with these options is resumed
// (quantize/run/run_identity.h); it includes the calibration request, not its tokens.
std::string checkpoint_identity(const ImportedModel& model, const CheckpointOptions& options);

// Throws Error if one of these files cannot be written, is named twice, or would replace an input
// (a file of the checkpoint, or one of `inputs`). Checks before any work is done; quantize_imported
// calls it for its own outputs. Empty paths are ignored.
void check_outputs(const ImportedModel& model, std::span<const std::filesystem::path> outputs,
                   std::span<const std::filesystem::path> inputs);

// The minimum size in bytes of all tensors in a file with these options, and that of the linears in
// blocks alone.
struct LeastBytes {
  std::uint64_t all = 0;
  std::uint64_t block_linears = 0;
};
LeastBytes least_bytes(const ImportedModel& model, const CheckpointOptions& options);

// Writes `output` atomically; a run with calibration or options.keep_blocks stores its finished
// blocks in OUTPUT.partial until then. `progress(done, total)` counts steps. Throws Error like
// make_planner, quantize_blocks and write_tensors.
CheckpointResult quantize_imported(const ImportedModel& model, const std::filesystem::path& output,
                                   const CheckpointOptions& options,
                                   const std::function<void(std::int64_t, std::int64_t)>& progress);
// Like quantize_imported, for a checkpoint folder; also throws Error like import_hf.
CheckpointResult quantize_checkpoint(
    const std::filesystem::path& folder, const std::filesystem::path& output,
    const CheckpointOptions& options,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
