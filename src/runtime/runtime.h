// A model that is ready to run: the backends of its ranks, its file, a session that fits in memory,
// and an optional draft model. Tools, server and C API open models with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "model/ranks.h"
#include "model/session.h"
#include "runtime/make_backend.h"

namespace leq {

struct RuntimeOptions {
  std::filesystem::path file;
  std::shared_ptr<const Model> model;          // or a model that is already open
  std::optional<std::filesystem::path> draft;  // the draft model's file
  DeviceOptions device;      // threads: sum over ranks of this process; 0: usable cores
  bool record_steps = true;  // GPUs only
  int ranks = 1;             // threads of this process, or processes started by mpirun
  // LoadMode::automatic maps the file for a GPU; for a CPU it may read the file if memory suffices
  // for the file and the rest of the run.
  LoadOptions load;
  // Returns the requested limits of a session; called once the model is open.
  std::function<RunLimits(const Model&)> limits = [](const Model&) { return RunLimits(); };
  // Whether the model's multi-token prediction head is used for drafts; ignored with a draft model.
  std::function<bool(const Model&)> drafts_by_mtp = [](const Model&) { return false; };
};

// The order of members ensures that sessions are destroyed before the objects that they reference.
struct Runtime {
  int threads = 1;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
  // The other ranks, which the session leads: threads or processes.
  std::unique_ptr<ThreadFollowers> followers;
  std::unique_ptr<Communicator> processes;
  std::unique_ptr<Session> session;
  std::unique_ptr<Model> draft_model;
  std::unique_ptr<Session> draft_session;  // runs the draft model or the MTP head
  // A message for the user if the context was reduced to fit a GPU's memory or differs from the one
  // that the file was made for; otherwise empty. To be passed to spelled().
  std::string note;
};

// Thrown in a follower's process when the leader has ended the work.
struct FollowerDone {};

// Plans memory for the model and its draft model before either is loaded. Throws Error naming the
// setting or the file. Under mpirun it returns only in the leader's process; in followers it throws
// FollowerDone.
Runtime open_runtime(const RuntimeOptions& options);

struct RuntimePlan {
  RunLimits limits;  // resolved
  MemoryPlan memory;
};

// The memory of a session with these limits on one rank, computed from the file's header; the
// device need not exist. `most`: memory of a GPU in bytes, to which a default context is reduced.
RuntimePlan plan_runtime(const Model& model, const RunLimits& wanted, const DeviceOptions& device,
                         std::optional<std::uint64_t> most = {});

}  // namespace leq
