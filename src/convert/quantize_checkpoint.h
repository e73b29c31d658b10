// A Hugging Face folder to a .leq file in one call: what leq-quantize does.
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
#include "quantize/pipeline/quantize_blocks.h"

namespace leq {

struct CheckpointOptions : RunOptions {
  std::string type = "int8";  // a scheme's name
  ActChoice act = ActChoice::automatic;
  std::string method = "absmax";  // of checkpoint_methods()
  MethodOptions method_options = {};
  std::vector<TypeOverride> overrides = {};
  // In place of the one that type, act, method and overrides make: a search's or a recipe's.
  TensorPlanner plan = {};
  int rotation_seeds = 1;  // with a rotation: the best of so many, from rewrites.rotation_seed
  CalibrationRequest calibration = {};
};

struct CheckpointResult {
  std::string description;  // of the source, for people
  std::uint64_t file_bytes = 0;
  std::int64_t parameters = 0;
  double bits_per_weight = 0;  // all tensor bytes x 8 / parameters
  double worst_error = 0;      // relative squared error of one tensor's weights
  std::string worst_tensor;
  double worst_loss = 0;  // the same of its outputs on the calibration text, where there is one
  std::string worst_loss_tensor;
};

// What CheckpointOptions::method takes: the rounding method, and which type goes with it unless
// told.
struct CheckpointMethod {
  std::string name;
  std::string summary;
  std::string type;
};
std::vector<CheckpointMethod> checkpoint_methods();

// What an interrupted run with these options is known by (quantize/pipeline/run_identity.h), the
// text by what was asked for.
std::string checkpoint_identity(const ImportedModel& model, const CheckpointOptions& options);

// Throws Error where one of these files cannot be written, is named twice, or would replace one
// that is read: a file of the checkpoint, or one of `inputs`. What can be told before any work;
// quantize_imported calls it for its own. Empty paths are passed over.
void check_outputs(const ImportedModel& model, std::span<const std::filesystem::path> outputs,
                   std::span<const std::filesystem::path> inputs);

// The least that all tensors take in a file with these options, in bytes, and those of the block
// linears alone.
struct LeastBytes {
  std::uint64_t all = 0;
  std::uint64_t block_linears = 0;
};
LeastBytes least_bytes(const ImportedModel& model, const CheckpointOptions& options);

// Writes `output` complete or not at all; a run with calibration keeps its finished blocks in
// OUTPUT.partial until then. `progress(done, total)` counts steps. Throws Error as make_planner,
// quantize_blocks and write_tensors do.
CheckpointResult quantize_imported(const ImportedModel& model, const std::filesystem::path& output,
                                   const CheckpointOptions& options,
                                   const std::function<void(std::int64_t, std::int64_t)>& progress);
// The same of a folder; throws Error as import_hf too.
CheckpointResult quantize_checkpoint(
    const std::filesystem::path& folder, const std::filesystem::path& output,
    const CheckpointOptions& options,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
