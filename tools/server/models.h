// Creates the server's models from the command line: a single one, or those of a folder.
#pragma once

#include "model/memory_plan.h"
#include "server/model_pool.h"
#include "tools/common/model_setup.h"
#include "tools/common/options.h"
#include "tools/server/presets.h"

namespace leq::server_tool {

// Returns the limits of a server's session.
AdjustLimits server_limits(const Options& options);

// Sets the sampling and engine options that depend on the model.
void finish_host_options(const Options& options, const Runtime& setup, HostOptions& host);

// Returns the options of single models, those of --models-preset.
Presets read_presets(const Options& options, const HostOptions& host);

// Returns the options of --models-dir and related flags, or of one model that is loaded again after
// it was idle. Throws Error if they contradict others.
PoolOptions pool_options(const Options& options, const Presets& presets, const HostOptions& host);

// Returns a loader of the pool's files, like -m. `host`: options for every model.
ModelLoader pool_loader(const Options& options, const Presets& presets, const HostOptions& host,
                        std::uint64_t memory_bytes);

}  // namespace leq::server_tool
