#include "model/rank_facts.h"

#include <string>

#include "base/json.h"
#include "base/version.h"

namespace leq {

std::vector<RankFact> rank_facts(const ModelConfig& config, const RunLimits& limits,
                                 std::uint64_t fingerprint) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const auto chosen = [](const std::optional<int>& value) {
    return value ? std::to_string(*value) : std::string("of the type");
  };
  return {{"version", kVersion},
          {"configuration", config_to_json(config).dump()},
          {"checksum of the model file", std::to_string(fingerprint)},
          {"context", number(limits.context)},
          {"sequences", number(limits.sequences)},
          {"positions of a sequence", number(limits.sequence_context)},
          {"tokens in one step", number(limits.batch_tokens)},
          {"rows with logits", number(limits.output_tokens)},
          {"type of keys", std::string(kv_type_name(limits.key_type))},
          {"type of values", std::string(kv_type_name(limits.value_type))},
          {"types of single layers", kv_layers_text(limits.kv_layers)},
          {"positions that stay first", chosen(limits.kv_sinks)},
          {"positions that stay last", chosen(limits.kv_recent)},
          {"states that are kept", number(limits.kept_states)}};
}

}  // namespace leq
