// Answers a generation request: submits it to the engine and sends the result as one JSON object or
// as a stream of server-sent events.
#pragma once

#include "runtime/engine_thread.h"
#include "server/generation_call.h"
#include "server/http_server.h"

namespace leq {

struct ReplyTimes {
  std::optional<double> most_seconds = {};  // time limit of a reply
  double ping_seconds = 15;                 // longest interval without data in a stream
};

// Returns when the reply is sent, or when the client has disconnected, which cancels the requests.
// Throws Error or Busy only if nothing has been sent yet.
void answer_generation(HttpExchange& exchange, GenerationCall call, const ApiModel& model,
                       EngineThread& engine, const ReplyTimes& times);

}  // namespace leq
