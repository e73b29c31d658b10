#include "quantize/run/run_identity.h"

#include "base/json.h"
#include "model/linear_sites.h"

namespace leq {

std::string run_identity(const ModelConfig& config, const std::string& weights,
                         const BlockOptions& options, const Json& texts) {
  Json json = {{"config", config_to_json(config)},
               {"weights", weights},
               {"fold_attention_biases", options.fold_attention_biases},
               {"sequential", runs_sequentially(config, options)},
               {"correct_bias", options.correct_bias},
               {"max_static_error", options.max_static_error},
               {"fold", options.fold ? options.fold->name : ""},
               {"texts", texts}};
  for (const TensorSpec& spec : tensor_list(config)) {
    if (!is_block_linear(spec.role)) continue;
    const TensorPlan plan = options.plan(spec.name, spec.role);
    const auto& [damping, shrinkage, act_order, descent_passes, refit_scales] = plan.options;
    json["plan"][spec.name] = {scheme_name(plan.scheme),
                               act_name(plan.act),
                               plan.method != nullptr ? plan.method->name : "absmax",
                               damping,
                               shrinkage,
                               act_order,
                               descent_passes,
                               refit_scales};
  }
  return json.dump();
}

std::optional<std::int64_t> windows_of_interrupted_run(const std::filesystem::path& folder) {
  const std::optional<std::string> identity = PartialRun::identity_of(folder);
  if (!identity) return std::nullopt;
  const std::string where = folder.string();
  // The identity of a search contains one per candidate; all have the same text.
  const Json kept = parse_json(*identity, where);
  const Json& run = kept.is_array() && !kept.empty() ? kept[0] : kept;
  if (!run.is_object() || !run.contains("texts") || !run["texts"].is_array()) return std::nullopt;
  if (run["texts"].size() != 1 || !run["texts"][0].contains("samples")) return std::nullopt;
  return json_get<std::int64_t>(run["texts"][0], "samples", where);
}

}  // namespace leq
