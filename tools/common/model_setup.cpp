#include "tools/common/model_setup.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "comm/mpi_ranks.h"
#include "engine/draft_model.h"
#include "model/memory_fit.h"
#include "tools/common/kv_choice.h"
#include "tools/common/model_path.h"
#include "tools/common/rank_choice.h"
#include "tools/common/reply_options.h"

namespace leq {
namespace {

int resolve_threads(const Options& options) {
  const auto count = [&](std::string_view name) {
    const std::int64_t asked = options.integer(name);
    return threads_for(static_cast<int>(asked), numa_mode(options));
  };
  const int threads = count("threads");
  if (options.given("threads-batch")) {
    require(count("threads-batch") == threads, "-tb ", options.integer("threads-batch"),
            ": one pool of threads does all work, expected ", threads, " as -t has it; leave -tb",
            " out");
  }
  return threads;
}

// The leader tells of an error, and its end ends all processes: only where it does not, another
// tells.
constexpr auto kTimeForTheLeader = std::chrono::seconds(1);

[[noreturn]] void follow_process(const Model& model, ModelSetup& setup, const RunLimits& limits) {
  try {
    follow(model, *setup.backend, limits, *setup.processes);
  } catch (const Error&) {
    std::this_thread::sleep_for(kTimeForTheLeader);
    throw;
  }
  throw FollowedToTheEnd();
}

RunLimits wanted_limits(const Options& options, const Model& model, const AdjustLimits& adjust) {
  RunLimits limits;
  choose_kv(options, model, limits);
  limits.batch_tokens = std::min(options.integer("batch-size"), options.integer("ubatch-size"));
  adjust(model, limits);
  return limits;
}

// What a run needs beside the file, which decides whether the file is read or mapped.
std::uint64_t memory_beside(const Options& options, const AdjustLimits& adjust, Backend& backend) {
  const Model probe(options.text("model"), {.mode = LoadMode::map});
  const RunLimits wanted = wanted_limits(options, probe, adjust);
  const MemoryPlan plan =
      MemoryPlanner(probe, backend.layout()).plan(resolve_limits(wanted, probe.config()));
  return plan.kv_bytes + plan.state_bytes + plan.scratch_bytes;
}

// Of a draft model beside a model with these limits; null: of the model's own head.
std::uint64_t draft_bytes(const Model& model, const Model* draft, const RunLimits& limits,
                          const Layout& layout) {
  if (draft == nullptr) return plan_mtp(model, limits, layout).total();
  return MemoryPlanner(*draft, layout).plan(draft_limits(limits, draft->config())).total();
}

// As fit_limits, with room for the draft model.
FittedLimits fit_both(const RunLimits& wanted, const Model& model, const Model* draft,
                      Backend& backend) {
  const RunLimits whole = resolve_limits(wanted, model.config());
  std::optional<DeviceRoom> room = backend.memory().room();
  if (!room) return {whole, ""};
  const std::uint64_t taken = draft_bytes(model, draft, whole, backend.layout());
  room->bytes -= std::min(room->bytes, taken);
  try {
    return MemoryPlanner(model, backend.layout()).fit(wanted, *room, backend.name());
  } catch (const Error& error) {
    throw Error(std::string(error.marked()) +
                    (draft != nullptr ? "; -md: the draft model takes "
                                      : "; its head of multi-token prediction takes ") +
                    human_bytes(taken) + " more",
                error.kind());
  }
}

LoadOptions load_options(const Options& options, const AdjustLimits& adjust, Backend& backend,
                         std::uint64_t draft_bytes) {
  LoadOptions load;
  load.lock = options.flag("mlock");
  if (options.given("mmap")) {
    load.mode = options.flag("mmap") ? LoadMode::map : LoadMode::read;
  } else if (backend.memory().room()) {
    load.mode = LoadMode::map;  // read once, on the way to the device
  } else {
    load.memory_needed_beside = memory_beside(options, adjust, backend) + draft_bytes;
  }
  return load;
}

void load(const Options& options, const AdjustLimits& adjust,
          const std::optional<std::filesystem::path>& draft, int ranks, ModelSetup& setup) {
  check_model_file("-m", options.text("model"));
  const int threads =
      setup.processes != nullptr ? setup.threads : threads_of_rank(setup.threads, 0, ranks);
  const bool in_threads = setup.processes == nullptr && ranks > 1;
  setup.backend =
      rank_backend(options, threads, setup.processes == nullptr ? 0 : mpi_local_rank(), ranks);
  std::vector<std::unique_ptr<Backend>> others;
  if (in_threads) others = follower_backends(options, setup.threads, ranks);
  setup.backend->record_steps(options.flag("graph"));
  std::uint64_t beside = 0;
  if (draft) {
    check_model_file("-md", *draft);
    setup.draft_model = std::make_unique<Model>(*draft, LoadOptions{});
    beside = setup.draft_model->file().file_bytes();
  }
  LoadOptions how = load_options(options, adjust, *setup.backend, beside);
  std::optional<Progress> line;  // on a terminal, while a large file is read
  how.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!line) line.emplace("loading", static_cast<std::int64_t>(total), "bytes");
    line->update(static_cast<std::int64_t>(done));
  };
  setup.model = std::make_unique<Model>(options.text("model"), how);
  if (line) line->clear();
  const Model& model = *setup.model;
  check_gpu_layers(options, model.config().layer_count());
  const RunLimits wanted = wanted_limits(options, model, adjust);
  if (draft) {
    require_same_vocabulary(model.tokenizer(), model.file().name(), setup.draft_model->tokenizer(),
                            setup.draft_model->file().name());
  }
  std::vector<Backend*> all = {setup.backend.get()};
  for (const auto& other : others) all.push_back(other.get());
  const bool mtp = drafts_by_mtp(options, model);
  FittedLimits fitted =
      draft || (mtp && ranks == 1)
          ? fit_both(wanted, model, setup.draft_model.get(), *setup.backend)
      : setup.processes != nullptr
          ? fit_limits(wanted, model, *setup.backend,
                       place_of(model.config(), setup.processes->rank(), setup.processes->size()))
          : fit_limits(wanted, model, all);
  setup.note = std::move(fitted.note);
  if (const std::string beyond = beyond_evidence(model, fitted.limits); !beyond.empty()) {
    setup.note += (setup.note.empty() ? "" : "\n") + beyond;
  }
  if (setup.processes != nullptr) {
    if (!setup.processes->leads()) follow_process(model, setup, fitted.limits);
    setup.session =
        std::make_unique<Session>(model, *setup.backend, fitted.limits, *setup.processes);
  } else if (in_threads) {
    setup.followers = std::make_unique<ThreadFollowers>(model, std::move(others), fitted.limits,
                                                        thread_rank_options(setup.threads, ranks));
    setup.session =
        std::make_unique<Session>(model, *setup.backend, fitted.limits, setup.followers->leader());
  } else {
    setup.session = std::make_unique<Session>(model, *setup.backend, fitted.limits);
  }
  if (draft) {
    setup.draft_session =
        std::make_unique<Session>(*setup.draft_model, *setup.backend,
                                  draft_limits(fitted.limits, setup.draft_model->config()));
  } else if (mtp) {
    setup.draft_session =
        make_mtp_session(model, *setup.backend, draft_limits(fitted.limits, *model.mtp()));
  }
}

}  // namespace

std::uint64_t planned_bytes(const Options& options, const AdjustLimits& adjust,
                            std::uint64_t most) {
  check_model_file("-m", options.text("model"));
  const Model probe(options.text("model"), {.mode = LoadMode::map});
  const std::string device = device_name(options);
  const auto layout = make_layout({device, resolve_threads(options)});
  const MemoryPlanner planner(probe, *layout);
  const RunLimits wanted = wanted_limits(options, probe, adjust);
  const RunLimits limits = device == "cpu" ? resolve_limits(wanted, probe.config())
                                           : planner.fit(wanted, DeviceRoom{most}, device).limits;
  const bool mtp = drafts_by_mtp(options, probe);
  return planner.plan(limits).total() + (mtp ? plan_mtp(probe, limits, *layout).total() : 0);
}

ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust,
                        const std::optional<std::filesystem::path>& draft) {
  ModelSetup setup;
  setup.threads = resolve_threads(options);
  const int ranks = rank_count(options);
  if (ranks_are_processes(options, ranks)) setup.processes = make_mpi_rank({});
  try {
    load(options, adjust, draft, ranks, setup);
  } catch (const Error& error) {
    if (setup.processes == nullptr) throw;
    throw setup.processes->abort(rank_error(*setup.processes, error));
  }
  return setup;
}

}  // namespace leq
