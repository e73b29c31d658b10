#include "generate/sampling_json.h"

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "generate/settings.h"

namespace leq {
namespace {

// The shortest decimal that reads back as the same f32: 0.8, not 0.800000011920929.
double shortest(float value) { return *parse_double(number_text(value)); }

}  // namespace

Json sampling_to_json(const SamplingSettings& s) {
  Json json = {{"seed", s.seed}, {"penalties_when_greedy", s.penalties_when_greedy}};
  for (const SamplingKnob& knob : kSamplingKnobs) {
    Json& entry = json[std::string(knob_key(knob))];
    const double value = knob_value(s, knob);
    if (knob.is_whole()) {
      entry = static_cast<std::int64_t>(value);
    } else {
      entry = shortest(static_cast<float>(value));
    }
  }
  Json& biases = json["logit_bias"] = Json::array();
  for (const LogitBias& bias : s.logit_bias) biases.push_back(logit_bias_text(bias));
  json["dry_sequence_breakers"] = s.dry_breakers;
  return json;
}

namespace {

// Returns `fallback` if the list is missing, as in chats saved by an earlier version.
std::vector<std::string> texts_or(const Json& object, const char* key,
                                  std::vector<std::string> fallback, const std::string& source) {
  if (!object.contains(key)) return fallback;
  std::vector<std::string> texts;
  for (const Json& text : json_member(object, key, Json::Type::array, source)) {
    if (!text.is_string()) json_type_error(object, key, source);
    texts.push_back(text.text());
  }
  return texts;
}

}  // namespace

SamplingSettings sampling_from_json(const Json& json, const std::string& source) {
  SamplingSettings s;
  s.seed = json_member(json, "seed", Json::Type::number_unsigned, source).get<std::uint64_t>();
  s.penalties_when_greedy = json_get<bool>(json, "penalties_when_greedy", source);
  for (const SamplingKnob& knob : kSamplingKnobs) {
    const std::string key(knob_key(knob));
    if (knob.is_later && !json.contains(key)) continue;
    const double value = knob.is_whole()
                             ? static_cast<double>(json_whole(
                                   json, key.c_str(), static_cast<std::int64_t>(knob.least),
                                   static_cast<std::int64_t>(knob.most), source))
                             : json_get<double>(json, key.c_str(), source);
    try {
      set_knob(s, knob, value);
    } catch (const Error& error) {
      fail(error.kind(), source, ": settings: ", error.marked());
    }
  }
  const std::vector<std::string> biases = texts_or(json, "logit_bias", {}, source);
  s.dry_breakers = texts_or(json, "dry_sequence_breakers", s.dry_breakers, source);
  try {
    for (const std::string& bias : biases) s.logit_bias.push_back(parse_logit_bias(bias));
    check_settings(s);
  } catch (const Error& error) {
    fail(error.kind(), source, ": settings: ", error.marked());
  }
  return s;
}

}  // namespace leq
