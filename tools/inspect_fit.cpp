#include "inspect_fit.h"

#include "base/json.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "format/loaded_file.h"
#include "platform/make_backend.h"
#include "report/table.h"

namespace leq {
namespace {

// Largest number of pages a sequence for which the plan stays within `available` bytes; plans grow
// with the context, so halving finds it.
std::int64_t largest_pages(std::int64_t most, std::uint64_t available,
                           const std::function<std::uint64_t(std::int64_t)>& bytes_for) {
  std::int64_t fits = 0;
  std::int64_t beyond = most + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (bytes_for(middle) <= available ? fits : beyond) = middle;
  }
  return fits;
}

}  // namespace

FitReport plan_fit(const Model& model, const RunLimits& wanted, int threads) {
  const auto backend = make_backend({"cpu", threads});
  const Weights weights = bind_weights(model.file(), model.config(), *backend);
  const auto plan = [&](const RunLimits& limits) {
    return plan_memory(model.file().file_bytes(), model.config(), weights, *backend, limits);
  };
  FitReport report;
  report.limits = resolve_limits(wanted, model.config());
  report.threads = threads > 0 ? threads : usable_cores();
  report.plan = plan(report.limits);
  report.available_bytes = available_memory();
  if (!report.available_bytes) return report;
  const std::int64_t sequences = report.limits.sequences;
  const std::int64_t most = model.config().context / kPageTokens;
  const std::int64_t pages = largest_pages(most, *report.available_bytes, [&](std::int64_t count) {
    RunLimits limits = wanted;
    limits.context = count * kPageTokens * sequences;
    return plan(resolve_limits(limits, model.config())).total();
  });
  report.largest_context = pages * kPageTokens * sequences;
  return report;
}

std::string fit_text(const FitReport& report) {
  const RunLimits& limits = report.limits;
  std::string text =
      "context " + with_commas(limits.context) + " (" + std::to_string(limits.sequences) +
      (limits.sequences == 1 ? " sequence" : " sequences") + "), batch " +
      std::to_string(limits.batch_tokens) + ", keys " + std::string(kv_type_name(limits.key_type)) +
      ", values " + std::string(kv_type_name(limits.value_type)) + ", " +
      std::to_string(report.threads) + (report.threads == 1 ? " thread" : " threads") + "\n\n";
  Table table;
  const auto row = [&](const char* part, std::uint64_t bytes) {
    table.add({{"memory", part},
               {"size", human_bytes(bytes)},
               {"bytes", with_commas(static_cast<std::int64_t>(bytes))}});
  };
  row("weights (the file)", report.plan.weight_bytes);
  row("KV cache", report.plan.kv_bytes);
  row("scratch", report.plan.scratch_bytes);
  row("total", report.plan.total());
  text += table.text();
  if (!report.available_bytes) return text;
  const bool fits = report.plan.total() <= *report.available_bytes;
  text += '\n' + human_bytes(*report.available_bytes) +
          " are free: " + (fits ? "it fits" : "it does not fit") +
          "; the largest context that does is " + with_commas(report.largest_context) + '\n';
  return text;
}

Json fit_json(const FitReport& report) {
  const RunLimits& limits = report.limits;
  return {{"context", limits.context},
          {"sequences", limits.sequences},
          {"batch_tokens", limits.batch_tokens},
          {"key_type", kv_type_name(limits.key_type)},
          {"value_type", kv_type_name(limits.value_type)},
          {"threads", report.threads},
          {"weight_bytes", report.plan.weight_bytes},
          {"kv_bytes", report.plan.kv_bytes},
          {"scratch_bytes", report.plan.scratch_bytes},
          {"total_bytes", report.plan.total()},
          {"available_bytes", report.available_bytes ? Json(*report.available_bytes) : Json()},
          {"largest_context", report.largest_context}};
}

}  // namespace leq
