// From the command line to the models that the server has: one, or those of a folder.
#pragma once

#include "model/memory_plan.h"
#include "server/model_pool.h"
#include "tools/common/model_setup.h"
#include "tools/common/options.h"

namespace leq::server_tool {

// What the server takes of a model for its sequences.
AdjustLimits server_limits(const Options& options);

// Sampling and the engine, by what the model says of itself.
void finish_host_options(const Options& options, const Runtime& setup, HostOptions& host);

// Of --models-dir and its companions. Throws Error where they contradict other options.
PoolOptions pool_options(const Options& options, const HostOptions& host);

// Loads the folder's files as -m loads one. `host`: of every model.
ModelLoader folder_loader(const Options& options, const HostOptions& host,
                          std::uint64_t memory_bytes);

}  // namespace leq::server_tool
