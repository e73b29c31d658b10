// Answers a generation request: submits it to the engine and sends the result as one JSON object or
// as a stream of server-sent events.
#pragma once

#include "runtime/engine_thread.h"
#include "server/generation_call.h"
#include "server/http_server.h"

namespace leq {

struct ReplyTimes {
  std::optional<double> most_seconds = {};  // time limit of a reply
  double ping_seconds = 15;                 // longest silence of a stream
};

// Returns when the reply is sent or the client has disconnected, which cancels the requests. Throws
// Error, and Busy, only before anything was sent.
void answer_generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
                       EngineThread& engine, const ReplyTimes& times);

}  // namespace leq
