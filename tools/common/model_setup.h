// From the common options to a model that is ready to run: backend, opened file, session.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/session.h"
#include "tools/common/device_choice.h"

namespace leq {

struct ModelSetup {
  int threads = 1;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
  std::string note;  // for people: the context was cut to what a GPU holds; else empty; marked
};

// Adds what a tool needs (context, output rows, ...) to the limits that the options give, once the
// model is known.
using AdjustLimits = std::function<void(const Model& model, RunLimits& limits)>;

// For the options of model_options(). Throws Error naming the option or the file.
ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust);
}  // namespace leq
