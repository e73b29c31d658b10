// From the common options to a model that is ready to run: backend, opened file, session.
#pragma once

#include <functional>
#include <memory>

#include "model/session.h"
#include "options.h"
#include "platform/make_backend.h"

namespace leq {

struct ModelSetup {
  int threads = 1;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
};

// Adds what a tool needs (context, output rows, ...) to the limits that the options give, once the
// model is known.
using AdjustLimits = std::function<void(const Model& model, RunLimits& limits)>;

// For the options of model_options(). Throws Error naming the option or the file.
ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust);

// --list-devices: what -dev takes here.
Answer list_devices_answer();

}  // namespace leq
