// A model ready to run: the backends of its ranks, its file, a session whose memory fits, and an
// optional draft model. Tools, server and C API open models with it.
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
  std::shared_ptr<const Model> model;          // or a model that is open already
  std::optional<std::filesystem::path> draft;  // the file of a draft model
  DeviceOptions device;      // threads: of all ranks of this process; 0: usable cores
  bool record_steps = true;  // GPUs only
  int ranks = 1;             // threads of this process, or processes started by mpirun
  // LoadMode::automatic maps the file for a GPU; else it may read it where memory suffices for the
  // file and the rest of the run.
  LoadOptions load;
  // The requested limits of a session, computed once the model is open.
  std::function<RunLimits(const Model&)> limits = [](const Model&) { return RunLimits(); };
  // Whether the model's head of multi-token prediction drafts; unused with a draft model.
  std::function<bool(const Model&)> drafts_by_mtp = [](const Model&) { return false; };
};

// Member order: sessions are destroyed before the objects they refer to.
struct Runtime {
  int threads = 1;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
  // Other ranks, led by the session: threads, or processes.
  std::unique_ptr<ThreadFollowers> followers;
  std::unique_ptr<Communicator> processes;
  std::unique_ptr<Session> session;
  std::unique_ptr<Model> draft_model;
  std::unique_ptr<Session> draft_session;  // of the draft model or the model's own MTP head
  // Message for the user: the context was cut to fit a GPU's memory, or is not what the file was
  // made for; else empty. To be passed to spelled().
  std::string note;
};

// Thrown when the leader has ended this process's work as a follower.
struct FollowerDone {};

// Plans memory for the model and its draft model before either is loaded. Throws Error naming the
// setting or the file. Under mpirun only the leader's process returns; the others throw
// FollowerDone.
Runtime open_runtime(const RuntimeOptions& options);

struct RuntimePlan {
  RunLimits limits;  // resolved
  MemoryPlan memory;
};

// Memory of a session with these limits on one rank, from the file's header alone; the device need
// not be present. `most`: bytes of a GPU's memory, to which a default context is cut.
RuntimePlan plan_runtime(const Model& model, const RunLimits& wanted, const DeviceOptions& device,
                         std::optional<std::uint64_t> most = {});

}  // namespace leq
