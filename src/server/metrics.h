// Numbers of the server as Prometheus reads them, under llama-server's names with a prefix of ours.
#pragma once

#include <string>

#include "server/engine_thread.h"

namespace leq {

std::string metrics_text(const EngineStatus& status);

}  // namespace leq
