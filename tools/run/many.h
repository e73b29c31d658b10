// Completes many prompts concurrently: -np N -f FILE, one prompt per line.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "model/open_model.h"
#include "tools/run/options.h"

namespace leq::run {

// Settings shared by all requests.
struct SharedRequest {
  SamplingSettings sampling;
  std::vector<Token> banned;
  StopRules stop;
  std::shared_ptr<const Grammar> grammar;
};

// Completes the prompts of args.prompt_file and prints the replies in its order, as text or as JSON
// lines. `begin` is called after the last check. Returns the exit status. Throws Error naming the
// line if a prompt cannot be read or is too long.
int complete_many(const RunArgs& args, const Model& model, Session& session,
                  const SharedRequest& shared, const EngineOptions& options,
                  const std::function<void()>& begin);

}  // namespace leq::run
