// Opens a model for running: backend, ranks, draft model and a session with its limits; and plans
// its memory from the header of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kv_types.h"
#include "model/memory_plan.h"
#include "model/open_model.h"
#include "model/ranks.h"
#include "model/session.h"
#include "ranks/communicator.h"
#include "runtime/make_backend.h"

namespace leq {

// Sets the KV types: the given ones, otherwise those that the file was quantized for, otherwise
// those that match the type of the model's weights.
void choose_kv_types(const std::optional<KvType>& keys, const std::optional<KvType>& values,
                     const Model& model, RunLimits& limits);

// A text such as "keys simq4, values simq4 (f16: the first 4 and the newest 32; blocks of 32)".
std::string kv_text(const RunLimits& limits);

// One line about limits that the evidence in the file does not cover; empty if all are covered or
// if the file has no evidence.
std::string beyond_measured(const Model& model, const RunLimits& limits);

enum class Drafting : std::uint8_t { off, from_text, by_model };

// Rows of logits per step: one per sequence, plus the draft tokens verified with it. A draft model
// drafts for several sequences at once.
std::int64_t reply_rows(int sequences, Drafting drafting);

// Placement of ranks: either threads of this process, each with a share of the cores or a GPU of
// its own, or processes started by mpirun.

// Whether mpirun started the ranks as processes. Throws Error if it started another number of
// processes, or if the device is an emulated GPU.
bool ranks_are_processes(int ranks, std::string_view device);

// The backend of one of `ranks` ranks; `device.threads` is the number of threads of this rank.
std::unique_ptr<Backend> rank_backend(const DeviceOptions& device, int rank, int ranks);
// The backends of all ranks except the leader, as threads; `device.threads` is their total.
std::vector<std::unique_ptr<Backend>> follower_backends(const DeviceOptions& device, int ranks,
                                                        bool record_steps);
ThreadRankOptions thread_rank_options(int threads, int ranks);

// A model that is ready to run: the backends of its ranks, its file, a session that fits in memory,
// and an optional draft model. Tools, server and C API open models with it.
struct RuntimeOptions {
  std::filesystem::path file;
  std::shared_ptr<const Model> model;          // or a model that is already open
  std::optional<std::filesystem::path> draft;  // the draft model's file
  // What a message calls a file that is known by another name to the user.
  std::function<std::string(const std::string&)> shown = [](const std::string& name) {
    return name;
  };
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
