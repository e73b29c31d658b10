// What an interrupted run is known by, so that a resumed run goes on with that one and no other.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "quantize/pipeline/quantize_blocks.h"

namespace leq {

// All that the bytes of the blocks depend on. `config` is that of the written model, `weights` the
// checksum of the checkpoint's, `texts` what is known of the inputs: as calibration_json, or
// of the same form.
std::string run_identity(const ModelConfig& config, const std::string& weights,
                         const BlockOptions& options, const Json& texts);

// Windows of the calibration text in the run that was interrupted in `folder` (OUTPUT.partial,
// OUTPUT.search); nullopt where there is none.
std::optional<std::int64_t> windows_of_interrupted_run(const std::filesystem::path& folder);

}  // namespace leq
