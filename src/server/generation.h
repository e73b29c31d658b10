// Answers a call for replies: hands it to the engine and writes what comes, as one JSON object or
// as a stream of server-sent events.
#pragma once

#include "runtime/engine_thread.h"
#include "server/generation_call.h"
#include "server/http_server.h"

namespace leq {

struct ReplyTimes {
  std::optional<double> most_seconds = {};  // that a reply may take
  double ping_seconds = 15;                 // in which a stream's client hears something
};

// Returns when the reply is sent, or the client has gone; the engine cancels the request then.
// Throws Error, and Busy, as long as nothing was sent.
void answer_generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
                       EngineThread& engine, const ReplyTimes& times);

}  // namespace leq
