#include "runtime/runtime.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/topology.h"
#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "engine/speculation.h"
#include "model/memory_plan.h"
#include "model/ranks.h"
#include "model/sharding.h"
#include "ranks/communicator.h"

namespace leq {

bool ranks_are_processes(int ranks, std::string_view device) {
  const std::optional<int> processes = mpi_processes();
  if (!processes || (*processes == 1 && ranks > 1)) return false;
  require(*processes == ranks, Setting{"ranks"}, ' ', ranks, ": mpirun started ", *processes,
          " processes, expected as many");
  require(ranks == 1 || !device.starts_with("sim"), Setting{"ranks"}, ' ', ranks,
          ": ranks on emulated GPUs are threads of one process; start it without mpirun");
  return ranks > 1;
}

std::unique_ptr<Backend> rank_backend(const DeviceOptions& device, int rank, int ranks) {
  DeviceOptions own = device;
  own.gpu.rank = rank;
  own.gpu.ranks = ranks;
  return make_backend(own);
}

std::vector<std::unique_ptr<Backend>> follower_backends(const DeviceOptions& device, int ranks,
                                                        bool record_steps) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 1; rank < ranks; ++rank) {
    DeviceOptions own = device;
    own.threads = threads_of_rank(device.threads, rank, ranks);
    backends.push_back(rank_backend(own, rank, ranks));
    backends.back()->record_steps(record_steps);
  }
  return backends;
}

ThreadRankOptions thread_rank_options(int threads, int ranks) {
  ThreadRankOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.threads += threads_of_rank(threads, rank, ranks);
  return options;
}

namespace {

constexpr int kDraftedTogether = 4;  // sequences that a draft model drafts for at once

// The leader reports an error, and its exit ends all processes. A follower waits this long before
// it reports its own error, in case the leader reports none.
constexpr auto kLeaderTimeout = std::chrono::seconds(1);

[[noreturn]] void follow_process(const Runtime& runtime, const RunLimits& limits) {
  try {
    follow(*runtime.model, *runtime.backend, limits, *runtime.processes);
  } catch (const Error&) {
    std::this_thread::sleep_for(kLeaderTimeout);
    throw;
  }
  throw FollowerDone();
}

MemoryPlan plan_of(const Model& model, const RunLimits& limits, const Layout& layout) {
  return MemoryPlanner(model, layout).plan(limits);
}

// Like fit_limits, but includes memory for the draft model, which runs only on rank 0.
FittedLimits fit_both(const RunLimits& wanted, const Model& model, const Model* draft,
                      Backend& backend, const RankPlace& place) {
  const RunLimits whole = resolve_limits(wanted, model.config());
  std::optional<DeviceMemoryInfo> memory = backend.memory().info();
  if (!memory) return {whole, ""};
  const MemoryPlan own =
      draft == nullptr  // the model's own MTP head
          ? plan_mtp(model, whole, backend.layout())
          : plan_of(*draft, draft_limits(whole, draft->config()), backend.layout());
  const std::uint64_t taken = own.total();
  memory->bytes -= std::min(memory->bytes, taken);
  try {
    return MemoryPlanner(model, backend.layout(), place).fit(wanted, *memory, backend.name());
  } catch (const Error& error) {
    const std::string bytes = human_bytes(taken);
    if (draft == nullptr) {
      fail(error.kind(), error.marked(), "; its head of multi-token prediction takes ", bytes,
           " more");
    }
    fail(error.kind(), error.marked(), "; ", Setting{"draft_model"}, ": the draft model takes ",
         bytes, " more");
  }
}

// `draft_bytes`: the size of the draft model's file.
LoadOptions load_options(const RuntimeOptions& options, Backend& backend,
                         std::uint64_t draft_bytes) {
  LoadOptions load = options.load;
  if (load.mode != LoadMode::automatic) return load;
  if (backend.memory().info()) {
    load.mode = LoadMode::map;  // read once, to copy it to the device
    return load;
  }
  const Model header(options.file, {.mode = LoadMode::map, .weights = false});
  const MemoryPlan plan =
      plan_of(header, resolve_limits(options.limits(header), header.config()), backend.layout());
  load.memory_needed_beside = plan.kv_bytes + plan.state_bytes + plan.scratch_bytes + draft_bytes;
  return load;
}

using Backends = std::vector<std::unique_ptr<Backend>>;

FittedLimits fitted(const RuntimeOptions& options, const Runtime& runtime,
                    const Backends& followers) {
  const Model& model = *runtime.model;
  const RunLimits wanted = options.limits(model);
  const Communicator* const own = runtime.processes.get();
  const RankPlace place = own != nullptr ? place_of(model.config(), own->rank(), own->size())
                                         : place_of(model.config(), 0, options.ranks);
  if (runtime.draft_model || (options.ranks == 1 && options.drafts_by_mtp(model))) {
    return fit_both(wanted, model, runtime.draft_model.get(), *runtime.backend, place);
  }
  if (own != nullptr) return fit_limits(wanted, model, *runtime.backend, place);
  std::vector<Backend*> all = {runtime.backend.get()};
  for (const auto& follower : followers) all.push_back(follower.get());
  return fit_limits(wanted, model, all);
}

// Sets runtime.backend, and returns the backends of the other ranks that are threads.
Backends make_backends(const RuntimeOptions& options, Runtime& runtime) {
  const bool is_process = runtime.processes != nullptr;
  DeviceOptions own = options.device, all = options.device;
  all.threads = runtime.threads;
  own.threads = is_process ? runtime.threads : threads_of_rank(runtime.threads, 0, options.ranks);
  runtime.backend = rank_backend(own, is_process ? mpi_local_rank() : 0, options.ranks);
  runtime.backend->record_steps(options.record_steps);
  if (is_process) return {};
  return follower_backends(all, options.ranks, options.record_steps);
}

void load_models(const RuntimeOptions& options, Runtime& runtime) {
  std::uint64_t draft_bytes = 0;
  if (options.draft) {
    runtime.draft_model = std::make_unique<Model>(*options.draft, LoadOptions{});
    draft_bytes = runtime.draft_model->file().memory_bytes();
  }
  runtime.model = options.model;
  if (runtime.model == nullptr) {
    runtime.model = std::make_shared<const Model>(
        options.file, load_options(options, *runtime.backend, draft_bytes));
  }
  if (!options.draft) return;
  require_same_vocabulary(runtime.model->tokenizer(), options.shown(runtime.model->file().name()),
                          runtime.draft_model->tokenizer(),
                          options.shown(runtime.draft_model->file().name()));
}

void make_session(const RuntimeOptions& options, const RunLimits& limits, Backends followers,
                  Runtime& runtime) {
  const Model& model = *runtime.model;
  if (!followers.empty()) {
    runtime.followers = std::make_unique<ThreadFollowers>(
        model, std::move(followers), limits, thread_rank_options(runtime.threads, options.ranks));
  }
  Communicator& ranks = runtime.processes != nullptr   ? *runtime.processes
                        : runtime.followers != nullptr ? runtime.followers->leader()
                                                       : one_rank();
  runtime.session = std::make_unique<Session>(model, *runtime.backend, limits, ranks);
  if (runtime.draft_model) {
    runtime.draft_session =
        std::make_unique<Session>(*runtime.draft_model, *runtime.backend,
                                  draft_limits(limits, runtime.draft_model->config()));
  } else if (options.drafts_by_mtp(model)) {
    runtime.draft_session =
        make_mtp_session(model, *runtime.backend, draft_limits(limits, *model.mtp()));
  }
}

void open(const RuntimeOptions& options, Runtime& runtime) {
  Backends followers = make_backends(options, runtime);
  load_models(options, runtime);
  FittedLimits fit = fitted(options, runtime, followers);
  runtime.note = std::move(fit.note);
  if (const std::string beyond = beyond_measured(*runtime.model, fit.limits); !beyond.empty()) {
    runtime.note += (runtime.note.empty() ? "" : "\n") + beyond;
  }
  if (runtime.threads == usable_cores() && usable_cores() < std::ssize(usable_core_list())) {
    runtime.note += (runtime.note.empty() ? "" : "\n") + std::to_string(runtime.threads) + " of " +
                    std::to_string(usable_core_list().size()) +
                    " cores are used: the control group's CPU quota is no more";
  }
  if (runtime.processes != nullptr && !runtime.processes->leads()) {
    follow_process(runtime, fit.limits);
  }
  make_session(options, fit.limits, std::move(followers), runtime);
}

}  // namespace

void choose_kv_types(const std::optional<KvType>& keys, const std::optional<KvType>& values,
                     const Model& model, RunLimits& limits) {
  KvEvidence made_for;
  made_for.key_type = made_for.value_type = default_kv_type(model.type());
  made_for = model.kv_evidence().value_or(made_for);
  limits.key_type = keys.value_or(made_for.key_type);
  limits.value_type = values.value_or(made_for.value_type);
}

std::string kv_text(const RunLimits& limits) {
  std::string text = "keys " + std::string(kv_type_name(limits.key_type)) + ", values " +
                     std::string(kv_type_name(limits.value_type));
  if (!limits.kv_layers.empty()) text += ", layers " + kv_layers_text(limits.kv_layers);
  const KvResidual residual = kv_residual(limits);
  if (!residual.copies()) return text;
  return text + " (f16: the first " + std::to_string(residual.sinks) + " and the newest " +
         std::to_string(residual.recent) + "; blocks of " + std::to_string(residual.block) + ")";
}

std::string beyond_measured(const Model& model, const RunLimits& limits) {
  if (!model.kv_evidence()) return "";
  const KvEvidence& evidence = *model.kv_evidence();
  RunLimits measured;
  measured.key_type = evidence.key_type;
  measured.value_type = evidence.value_type;
  const bool same = kv_text(limits) == kv_text(measured);
  if (same && limits.context <= evidence.context) return "";
  const std::string what =
      same ? "a context of " + with_commas(limits.context) + " positions" : kv_text(limits);
  return what + ": not what this file was made for (" + kv_text(measured) + ", " +
         with_commas(evidence.context) + " positions, KL " + fixed(evidence.kl, 5) + ")";
}

std::int64_t reply_rows(int sequences, Drafting drafting) {
  const int drafted = drafting == Drafting::off         ? 0
                      : drafting == Drafting::from_text ? 1
                                                        : std::min(sequences, kDraftedTogether);
  return sequences + drafted * kMaxDraftTokens;
}

Runtime open_runtime(const RuntimeOptions& options) {
  Runtime runtime;
  runtime.threads = threads_for(options.device.threads, options.device.numa);
  if (ranks_are_processes(options.ranks, options.device.device)) {
    runtime.processes = make_mpi_rank({});
  }
  try {
    open(options, runtime);
  } catch (const Error& error) {
    if (runtime.processes == nullptr) throw;
    throw runtime.processes->abort(rank_error(*runtime.processes, error));
  }
  return runtime;
}

RuntimePlan plan_runtime(const Model& model, const RunLimits& wanted, const DeviceOptions& device,
                         std::optional<std::uint64_t> most) {
  DeviceOptions own = device;
  own.threads = threads_for(device.threads, device.numa);
  const auto layout = make_layout(own);
  const RunLimits limits = !most || device.device == "cpu"
                               ? resolve_limits(wanted, model.config())
                               : MemoryPlanner(model, *layout)
                                     .fit(wanted, DeviceMemoryInfo{*most}, device.device)
                                     .limits;
  return {limits, plan_of(model, limits, *layout)};
}

}  // namespace leq
