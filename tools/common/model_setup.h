// From the common options to a model that is ready to run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/runtime.h"
#include "tools/common/device_choice.h"

namespace leq {

// Adds what a tool needs (context, output rows, ...) to the limits that the options give, once the
// model is known.
using AdjustLimits = std::function<void(const Model& model, RunLimits& limits)>;

// open_runtime for the options of model_options(); `draft`: the file of a draft model (-md). Throws
// Error naming the option or the file.
Runtime set_up_model(const Options& options, const AdjustLimits& adjust,
                     const std::optional<std::filesystem::path>& draft = {});

// Bytes of weights, KV cache and scratch that set_up_model would take, of the file's header alone;
// one rank, no draft model. `most`: of a GPU's memory, to which a default context is cut.
std::uint64_t planned_bytes(const Options& options, const AdjustLimits& adjust, std::uint64_t most);

}  // namespace leq
