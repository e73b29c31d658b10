// The identity of an interrupted run, which ensures that only the same run resumes it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "quantize/run/quantize_blocks.h"

namespace leq {

// Everything that the bytes of the blocks depend on. `config` is that of the written model,
// `weights` the checksum of the checkpoint's weights; `texts` describes the calibration text as
// calibration_json does.
std::string run_identity(const ModelConfig& config, const std::string& weights,
                         const BlockOptions& options, const Json& texts);

// Number of calibration windows of the interrupted run in `folder` (OUTPUT.partial, OUTPUT.search);
// nullopt if there is none.
std::optional<std::int64_t> windows_of_interrupted_run(const std::filesystem::path& folder);

}  // namespace leq
