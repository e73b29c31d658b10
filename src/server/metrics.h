// The server's metrics in Prometheus format, with llama-server's names and a prefix of leq.
#pragma once

#include <span>
#include <string>

#include "runtime/engine_thread.h"
#include "server/model_pool.h"

namespace leq {

struct ModelMetrics {
  std::string model;  // label of all samples; empty: none
  EngineStatus status;
};

std::string metrics_text(std::span<const ModelMetrics> models);
// Additional metrics of a server with several models.
std::string pool_metrics_text(const PoolCounts& counts);

}  // namespace leq
