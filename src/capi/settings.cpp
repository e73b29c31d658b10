#include "capi/settings.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "server/api_fields.h"
#include "server/call_settings.h"

namespace leq::capi {
namespace {

constexpr std::array<std::string_view, 9> kOthers = {
    "seed",         "stop",         "logit_bias",
    "ignore_eos",   "max_tokens",   "max_completion_tokens",
    "mirostat_tau", "mirostat_eta", "n_predict"};

bool is_known(std::string_view name) {
  return std::ranges::find(kOthers, name) != kOthers.end() ||
         std::ranges::any_of(kSamplingKnobs, [&](const SamplingKnob& knob) {
           return name == knob.name || (!knob.config_key.empty() && name == knob.config_key);
         });
}

}  // namespace

DrawSettings read_settings(const char* json, const ApiModel& model) {
  const Json tree =
      parse_request_object(json == nullptr ? std::string_view("{}") : std::string_view(json));
  const JsonNode body = tree;
  // Unknown names are errors, because a misspelled setting would otherwise be silently ignored.
  for (const JsonNode one : body) {
    if (!is_known(one.key())) field_error(printable(one.key()), "is no setting of a reply");
  }
  DrawSettings settings;
  settings.sampling = read_sampling(body, model, settings.has_seed);
  settings.stop = read_stop(body, model);
  if (flag_field(body, "ignore_eos")) settings.banned = settings.stop.end_tokens;
  return settings;
}

}  // namespace leq::capi
