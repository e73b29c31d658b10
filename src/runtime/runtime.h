// A model ready to run: the backends of its ranks, its file, a session with memory that fits, and
// a draft model beside it. Tools, server and C API open models by it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "model/ranks.h"
#include "model/session.h"
#include "platform/make_backend.h"

namespace leq {

struct RuntimeOptions {
  std::filesystem::path file;
  std::shared_ptr<const Model> model;          // or one that is open already
  std::optional<std::filesystem::path> draft;  // the file of a draft model
  DeviceOptions device;      // its threads are those of all ranks of this process; 0: usable cores
  bool record_steps = true;  // of a GPU
  int ranks = 1;             // threads of this process, or the processes that mpirun started
  // With LoadMode::automatic a file is mapped for a GPU, else read where memory is there for it and
  // for what the run needs beside it.
  LoadOptions load;
  // What is wanted of a model's session, once the model is known.
  std::function<RunLimits(const Model&)> limits = [](const Model&) { return RunLimits(); };
  // Whether the model's head of multi-token prediction drafts; not beside a draft model.
  std::function<bool(const Model&)> drafts_by_mtp = [](const Model&) { return false; };
};

// Sessions end before what they run on.
struct Runtime {
  int threads = 1;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
  // The ranks that the session leads, where there are any: threads, or processes.
  std::unique_ptr<ThreadFollowers> followers;
  std::unique_ptr<Communicator> processes;
  std::unique_ptr<Session> session;
  std::unique_ptr<Model> draft_model;
  std::unique_ptr<Session> draft_session;  // of the draft model, or of the model's own head
  // For people: the context was cut to what a GPU holds, or is not what the file was made for; else
  // empty. For spelled().
  std::string note;
};

// This process was a rank that another one led, and its work is done.
struct FollowerDone {};

// Memory is planned for the model and its draft model before either is loaded. Throws Error naming
// the setting or the file. Under mpirun only the process that leads returns; the others throw
// FollowerDone.
Runtime open_runtime(const RuntimeOptions& options);

struct RuntimePlan {
  RunLimits limits;  // resolved
  MemoryPlan memory;
};

// What a session with these limits would take on one rank, of the file's header alone; the device
// need not be here. `most`: bytes of a GPU's memory, to which a default context is cut.
RuntimePlan plan_runtime(const Model& model, const RunLimits& wanted, const DeviceOptions& device,
                         std::optional<std::uint64_t> most = {});

}  // namespace leq
