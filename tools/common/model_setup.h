// From the common options to a model that is ready to run: backend, opened file, session.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "model/ranks.h"
#include "model/session.h"
#include "tools/common/device_choice.h"

namespace leq {

struct ModelSetup {
  int threads = 1;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  // The ranks that the session leads, where there are any: threads, or processes.
  std::unique_ptr<ThreadFollowers> followers;
  std::unique_ptr<Communicator> processes;
  std::unique_ptr<Session> session;
  // A draft model beside it, where there is one; the session also of the model's own head.
  std::unique_ptr<Model> draft_model;
  std::unique_ptr<Session> draft_session;
  std::string note;  // for people: the context was cut to what a GPU holds; else empty; marked
};

// Adds what a tool needs (context, output rows, ...) to the limits that the options give, once the
// model is known.
using AdjustLimits = std::function<void(const Model& model, RunLimits& limits)>;

// This process was a rank that another one led, and has done all that it was there for.
struct FollowedToTheEnd {};

// For the options of model_options(); `draft`: the file of a draft model (-md). Memory is planned
// for both before either is loaded. Throws Error naming the option or the file. Under mpirun only
// the process that leads returns; in the others it throws FollowedToTheEnd (run_tool knows it).
ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust,
                        const std::optional<std::filesystem::path>& draft = {});

// Bytes of weights, KV cache and scratch that set_up_model would take, of the file's header alone;
// one rank, no draft model. `most`: of a GPU's memory, to which a default context is cut.
std::uint64_t planned_bytes(const Options& options, const AdjustLimits& adjust, std::uint64_t most);

}  // namespace leq
