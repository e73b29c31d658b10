// Many prompts at once: -np N -f FILE, a prompt in each line.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "model/open_model.h"
#include "tools/run/options.h"

namespace leq::run {

// What all requests have in common.
struct SharedRequest {
  SamplingSettings sampling;
  std::vector<Token> banned;
  StopRules stop;
  std::shared_ptr<const Grammar> grammar;
};

// Completes the prompts of args.prompt_file and prints the replies in its order, as text or as
// lines of JSON. `begin` is called once nothing can be refused any more. Returns the exit status.
// Throws Error naming the line where a prompt cannot be read or is too long.
int complete_many(const RunArgs& args, const Model& model, Session& session,
                  const SharedRequest& shared, const EngineOptions& options,
                  const std::function<void()>& begin);

}  // namespace leq::run
