// Answers a call for replies: hands it to the engine and writes what comes, as one JSON object or
// as a stream of server-sent events.
#pragma once

#include "server/engine_thread.h"
#include "server/generation_call.h"
#include "server/http_server.h"

namespace leq {

// Returns when the reply is sent, or nobody waits for it any more; the engine is told then. Throws
// Error, and Busy, as long as nothing was sent.
void answer_generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
                       EngineThread& engine, std::optional<double> most_seconds);

// Letters that are not used twice.
std::string random_id();

}  // namespace leq
