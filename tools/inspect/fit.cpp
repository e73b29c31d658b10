#include "tools/inspect/fit.h"
#include "tools/common/kv_choice.h"

#include <algorithm>

#include "base/error.h"
#include "base/given_bytes.h"
#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/speculation.h"
#include "format/loaded_file.h"
#include "model/memory_plan.h"
#include "model/ranks.h"
#include "runtime/make_backend.h"
#include "runtime/runtime.h"

namespace leq {
namespace {

std::string where(const FitReport& report) {
  if (report.on_gpu()) return "on " + report.device;
  return std::to_string(report.threads) + (report.threads == 1 ? " thread" : " threads");
}

// Returns the GPU's memory cap if there is one, as the GPU may be absent; otherwise free memory.
std::optional<std::uint64_t> available_for(const FitDevice& wanted) {
  if (wanted.device == "cpu") return available_memory();
  if (wanted.gpu.memory_cap > 0) return wanted.gpu.memory_cap;
  try {
    const auto backend = make_backend({wanted.device, wanted.threads});
    return backend->memory().info()->bytes;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) throw;
    fail(error.kind(), error.marked(),
         "; to plan for a GPU that is not here, say what it has: --vram 24G");
  }
}

// Plans the memory of each rank, which includes the scratch of the rank's own threads.
std::vector<MemoryPlan> plan_ranks(const Model& model, const RunLimits& limits, int threads,
                                   const FitDevice& device) {
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < device.ranks; ++rank) {
    const int own = threads_of_rank(threads, rank, device.ranks);
    const auto layout = make_layout({device.device, own, device.gpu});
    const RankPlace place = place_of(model.config(), rank, device.ranks);
    plans.push_back(MemoryPlanner(model, *layout, place).plan(limits));
  }
  return plans;
}

// Sums the plans. Ranks on the CPU share the file's weights, so these are counted once.
MemoryPlan joined(const std::vector<MemoryPlan>& plans, const FitDevice& device) {
  MemoryPlan all;
  for (const MemoryPlan& plan : plans) {
    all.weight_bytes =
        device.device == "cpu" ? plan.weight_bytes : all.weight_bytes + plan.weight_bytes;
    all.kv_bytes += plan.kv_bytes;
    all.state_bytes += plan.state_bytes;
    all.scratch_bytes += plan.scratch_bytes;
  }
  return all;
}

void add_mtp(const MemoryPlan& mtp, MemoryPlan& plan) {
  plan.weight_bytes += mtp.weight_bytes;
  plan.kv_bytes += mtp.kv_bytes;
  plan.scratch_bytes += mtp.scratch_bytes;
}

// Returns the bytes that one device must have: those of the largest rank if ranks have GPUs.
std::uint64_t largest_part(const FitReport& report) {
  if (!report.on_gpu() || report.ranks.empty()) return report.plan.total();
  std::uint64_t most = 0;
  for (const MemoryPlan& plan : report.ranks) most = std::max(most, plan.total());
  return most;
}
const char* where_free(const FitReport& report) {
  return report.on_gpu() && !report.ranks.empty() ? " on each GPU" : "";
}

}  // namespace

FitReport plan_fit(const Model& model, const RunLimits& wanted, const FitDevice& device, bool mtp) {
  const auto layout = make_layout({device.device, device.threads, device.gpu});
  const MemoryPlanner planner(model, *layout);
  FitReport report;
  report.device = device.device;
  report.limits = resolve_limits(wanted, model.config());
  report.threads = device.threads > 0 ? device.threads : usable_cores();
  report.plan = planner.plan(report.limits);
  if (device.ranks > 1) {
    report.ranks = plan_ranks(model, report.limits, report.threads, device);
    report.plan = joined(report.ranks, device);
  }
  MemoryPlan head;
  if (mtp) {
    head = plan_mtp(model, report.limits, *layout);
    add_mtp(head, report.plan);
    if (!report.ranks.empty()) add_mtp(head, report.ranks.front());
  }
  report.available_bytes = available_for(device);
  if (!report.available_bytes || device.ranks > 1) return report;
  report.largest_context = planner.largest_context(
      wanted, model.config().context,
      *report.available_bytes - std::min(*report.available_bytes, head.total()));
  return report;
}

std::string fit_text(const FitReport& report) {
  const RunLimits& limits = report.limits;
  std::string text =
      "context " + with_commas(limits.context) + " (" + std::to_string(limits.sequences) +
      (limits.sequences == 1 ? " sequence" : " sequences") + "), batch " +
      std::to_string(limits.batch_tokens) + ", " + kv_text(limits) + ", " + where(report) + "\n\n";
  Table table;
  const auto row = [&](const char* part, std::uint64_t bytes) {
    table.add({{"memory", part},
               {"size", human_bytes(bytes)},
               {"bytes", with_commas(static_cast<std::int64_t>(bytes))}});
  };
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank) + ": ";
    if (report.on_gpu()) row((name + "weights").c_str(), report.ranks[rank].weight_bytes);
    row((name + "KV cache").c_str(), report.ranks[rank].kv_bytes);
    row((name + "scratch").c_str(), report.ranks[rank].scratch_bytes);
  }
  row(report.on_gpu() ? (report.ranks.empty() ? "weights (on the GPU)" : "weights (on the GPUs)")
                      : "weights (the file)",
      report.plan.weight_bytes);
  row("KV cache", report.plan.kv_bytes);
  if (report.plan.state_bytes > 0) row("states", report.plan.state_bytes);
  row("scratch", report.plan.scratch_bytes);
  row("total", report.plan.total());
  text += table.text();
  if (!report.available_bytes) return text;
  const bool fits = largest_part(report) <= *report.available_bytes;
  text += '\n' + given_bytes(*report.available_bytes) + " are free" + where_free(report) + ": " +
          (fits ? "it fits" : "it does not fit");
  if (report.ranks.empty()) {
    text += "; the largest context that does is " + with_commas(report.largest_context);
  }
  return text + '\n';
}

Json fit_json(const FitReport& report) {
  const RunLimits& limits = report.limits;
  Json json = {{"context", limits.context},
               {"sequences", limits.sequences},
               {"batch_tokens", limits.batch_tokens},
               {"key_type", kv_type_name(limits.key_type)},
               {"value_type", kv_type_name(limits.value_type)},
               {"kv_layers", kv_layers_text(limits.kv_layers)},
               {"device", report.device},
               {"threads", report.threads},
               {"weight_bytes", report.plan.weight_bytes},
               {"kv_bytes", report.plan.kv_bytes},
               {"state_bytes", report.plan.state_bytes},
               {"scratch_bytes", report.plan.scratch_bytes},
               {"total_bytes", report.plan.total()},
               {"available_bytes", report.available_bytes ? Json(*report.available_bytes) : Json()},
               {"largest_context", report.largest_context}};
  if (report.ranks.empty()) return json;
  json.erase("largest_context");
  for (const MemoryPlan& plan : report.ranks) {
    Json rank = {{"kv_bytes", plan.kv_bytes}, {"scratch_bytes", plan.scratch_bytes}};
    if (report.on_gpu()) rank["weight_bytes"] = plan.weight_bytes;
    json["ranks"].push_back(std::move(rank));
  }
  return json;
}

}  // namespace leq
