#include "tools/common/setting_flags.h"

#include <algorithm>

#include "sampling/settings.h"

namespace leq {
namespace {

constexpr SettingFlag kFlags[] = {
    {"act", "--act"},
    {"batch_tokens", "-b"},
    {"breakdown", "--breakdown"},
    {"cache", "--no-cache"},
    {"calibration", "--calibration"},
    {"chat_template", "--chat-template"},
    {"chunks", "--chunks"},
    {"context", "-c"},
    {"device", "-dev"},
    {"divergence_base", "--kl-divergence-base"},
    {"draft_model", "-md"},
    {"dry_sequence_breaker", "--dry-sequence-breaker"},
    {"evaluations", "--search-evals"},
    {"exact", "--exact"},
    {"fit", "--fit"},
    {"fix_mistral_regex", "--fix-mistral-regex"},
    {"host", "--host"},
    {"join", "--join"},
    {"kept_states", "--ctx-checkpoints"},
    {"key_type", "-ctk"},
    {"kv_layers", "--kv-layers"},
    {"kv_recent", "--kv-residual"},
    {"kv_sinks", "--kv-sink"},
    {"length", "--length"},
    {"list_devices", "--list-devices"},
    {"lock", "--mlock"},
    {"logit_bias", "--logit-bias"},
    {"max_kl", "--max-kl"},
    {"max_ram", "--max-ram"},
    {"measure_keys", "--measure-keys"},
    {"memory_cap", "--vram"},
    {"method", "--method"},
    {"numa", "--numa"},
    {"offline", "--offline"},
    {"output", "-o"},
    {"overrides", "--tensor-type"},
    {"pooling", "--pooling"},
    {"port", "--port"},
    {"pretokenizer", "--pretokenizer"},
    {"prompt_and_generation", "-pg"},
    {"protocol", "--protocol"},
    {"ranks", "--tp"},
    {"receipt", "--receipt"},
    {"restart", "--restart"},
    {"samples", "--samples"},
    {"search", "--search"},
    {"sequences", "-np"},
    {"speculate", "--speculate"},
    {"stride", "--stride"},
    {"target_bpw", "--target-bpw"},
    {"target_size", "--target-size"},
    {"threads", "-t"},
    {"type", "--type"},
    {"value_type", "-ctv"},
    {"verify", "--verify"},
    {"window", "--window"},
};

}  // namespace

std::span<const SettingFlag> setting_flags() { return kFlags; }

std::string flag_of(std::string_view setting) {
  const auto* found = std::ranges::find(kFlags, setting, &SettingFlag::setting);
  if (found != std::end(kFlags)) return std::string(found->flag);
  const auto parameter = std::ranges::find(kSamplingParameters, setting, &SamplingParameter::name);
  return parameter != kSamplingParameters.end() ? "--" + parameter_word(*parameter)
                                                : std::string(setting);
}

std::string with_flags(const Error& error) { return with_flags(error.marked()); }

std::string with_flags(std::string_view marked) { return spelled(marked, flag_of); }

}  // namespace leq
