// Opens a model, ready to run, from the common options, and describes the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "tools/common/device_choice.h"

namespace leq {

// Adds a tool's requirements (context, output rows, ...) to the limits given by the options, once
// the model is open.
using AdjustLimits = std::function<void(const Model& model, RunLimits& limits)>;

// Calls open_runtime with the options of model_options(); `draft`: the draft model's file (-md).
// Throws Error naming the option or the file.
Runtime set_up_model(const Options& options, const AdjustLimits& adjust,
                     const std::optional<std::filesystem::path>& draft = {});

// Returns the bytes of weights, KV cache and scratch that set_up_model needs for one rank without a
// draft model, from the file's header. `most`: GPU memory that a default context must fit into.
std::uint64_t planned_bytes(const Options& options, const AdjustLimits& adjust, std::uint64_t most);

// The description of a run that tools print before the run with --verbose, one line per entry:
// device, kernel of each class of linear, KV cache, memory, load mode.
std::vector<std::string> plan_lines(const Model& model, Session& session);

}  // namespace leq
