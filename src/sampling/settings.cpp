#include "sampling/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kMaxBreakerBytes = 1000;

// Throws Error if the value is outside the parameter's range; NaN counts as outside.
void check_range(const SamplingParameter& parameter, double value) {
  require(value >= parameter.least && value <= parameter.most && value != parameter.refused,
          Setting{parameter.name}, " is ", value, ", expected ", parameter.range);
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang does not deduce aggregates yet

}  // namespace

std::size_t parameter_index(std::string_view name) {
  const auto found = std::ranges::find(kSamplingParameters, name, &SamplingParameter::name);
  ensure(found != kSamplingParameters.end(), "no sampling setting is called ", name);
  return static_cast<std::size_t>(found - kSamplingParameters.begin());
}

const SamplingParameter* find_parameter(std::string_view word) {
  std::string name(word);
  std::ranges::replace(name, '-', '_');
  const auto* found =
      std::ranges::find_if(kSamplingParameters, [&](const SamplingParameter& parameter) {
        return parameter.name == name || parameter_key(parameter) == name;
      });
  return found == kSamplingParameters.end() ? nullptr : found;
}

std::string_view parameter_key(const SamplingParameter& parameter) {
  return parameter.short_name.empty() ? parameter.name : parameter.short_name;
}

std::string parameter_word(const SamplingParameter& parameter) {
  std::string word(parameter_key(parameter));
  std::ranges::replace(word, '_', '-');
  return word;
}

double parameter_value(const SamplingSettings& settings, const SamplingParameter& parameter) {
  return std::visit([&](auto field) { return static_cast<double>(settings.*field); },
                    parameter.field);
}

void set_parameter(SamplingSettings& settings, const SamplingParameter& parameter, double value) {
  if (!parameter.is_whole()) value = static_cast<float>(value);  // rounded: 1.00000001 becomes 1
  check_range(parameter, value);
  std::visit(
      [&](auto field) {
        settings.*field = static_cast<std::decay_t<decltype(settings.*field)>>(value);
      },
      parameter.field);
}

LogitBias parse_logit_bias(std::string_view text) {
  const auto sign = std::min(text.find_first_of("+-"), text.size());
  const bool below = text.substr(sign).starts_with('-');
  const std::string_view amount = text.substr(std::min(sign + 1, text.size()));
  const bool is_signed_again = amount.starts_with('+') || amount.starts_with('-');
  const double size = below && amount == "inf"
                          ? double{-kNoLogit}
                          : parse_double(is_signed_again ? "" : amount).value_or(-1);
  const auto id = parse_int(text.substr(0, sign)).value_or(-1);
  const bool good = id >= 0 && id <= static_cast<std::int64_t>(kMaxTokens) && size >= 0 &&
                    (size <= kMaxFinite || size == double{-kNoLogit});
  require(good, Setting{"logit_bias"}, " is '", printable(text),
          "', expected a token, a sign and a number, as 15043+1 or 29905-inf");
  const auto bias = static_cast<float>(size);
  return {static_cast<std::int32_t>(id), below ? -bias : bias};
}

std::string logit_bias_text(const LogitBias& bias) {
  std::string text = std::to_string(bias.id);
  if (bias.bias == kNoLogit) return text + "-inf";
  std::array<char, 32> number;
  const auto end = std::to_chars(number.data(), number.data() + number.size(), bias.bias);
  return text + (std::signbit(bias.bias) ? "" : "+") + std::string(number.data(), end.ptr);
}

void check_settings(const SamplingSettings& settings) {
  for (const SamplingParameter& parameter : kSamplingParameters)
    check_range(parameter, parameter_value(settings, parameter));
  for (const LogitBias& bias : settings.logit_bias) {
    require(bias.id >= 0 && bias.bias <= kMaxFinite, Setting{"logit_bias"}, " is ", bias.bias,
            " for token ", bias.id, ", expected a number for an id of 0 or more");
  }
  for (const std::string& text : settings.dry_breakers) {
    require(!text.empty() && text.size() <= kMaxBreakerBytes, Setting{"dry_sequence_breaker"},
            " has ", text.size(), " bytes, expected 1 to ", kMaxBreakerBytes);
  }
}

SampleRule sample_rule(const SamplingSettings& settings) {
  SampleRule rule;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const double value = parameter_value(settings, parameter);
    std::visit(
        Overloaded{[](std::monostate) {},
                   [&](float SampleRule::*field) { rule.*field = static_cast<float>(value); },
                   [&](std::int32_t SampleRule::*field) {
                     rule.*field = static_cast<std::int32_t>(std::max(value, 0.0));
                   }},
        parameter.rule);
  }
  return rule;
}

namespace {

GivenSetting choose(const SamplingParameter& parameter, const GivenSampling& given,
                    const PerParameter<double>& model) {
  if (const auto& setting = given[parameter.name]) return *setting;
  if (const auto& value = model[parameter.name]) return {*value, SettingOrigin::model};
  return {parameter_value(SamplingSettings{}, parameter), SettingOrigin::fallback};
}

// Whether to report a setting, because it has an effect or a user would expect it to have one.
bool needs_note(const SamplingParameter& parameter, SettingOrigin origin,
                const SamplingSettings& all) {
  const bool greedy = all.temperature == 0;
  if (parameter.role == ParameterRole::temperature) return true;
  const bool is_cut =
      parameter.role == ParameterRole::cut || parameter.role == ParameterRole::extra_cut;
  if (is_cut && all.mirostat != 0 && parameter.name != "mirostat")
    return false;  // Mirostat replaces it
  if (parameter.role == ParameterRole::cut) return !greedy;
  if (origin == SettingOrigin::fallback) return false;
  const bool is_off =
      parameter_value(all, parameter) == parameter_value(SamplingSettings{}, parameter);
  if (is_cut && is_off && origin == SettingOrigin::model) return false;  // common in model files
  return !greedy || (all.penalties_when_greedy && !is_cut);
}

}  // namespace

std::string number_text(double value) {
  std::array<char, 32> text;
  // Settings are stored as f32, so 0.8f is printed as "0.8", not as the nearest double.
  const auto end = std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(value));
  return {text.data(), end.ptr};
}

std::string_view origin_name(SettingOrigin origin) {
  constexpr std::array<std::string_view, 5> kNames = {"default", "model", "chat", "environment",
                                                      "flag"};
  return kNames[static_cast<std::size_t>(origin)];
}

SamplingChoice choose_sampling(const GivenSampling& given, const PerParameter<double>& model) {
  SamplingChoice choice;
  SamplingSettings& settings = choice.settings;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    set_parameter(settings, parameter, choose(parameter, given, model).value);
    const auto& own = given[parameter.name];
    settings.penalties_when_greedy |=
        parameter.role == ParameterRole::penalty && own && own->origin != SettingOrigin::chat;
  }
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const GivenSetting chosen = choose(parameter, given, model);
    if (!needs_note(parameter, chosen.origin, settings)) continue;
    choice.notes.push_back(parameter_word(parameter) + " " + number_text(chosen.value) + " (" +
                           std::string(origin_name(chosen.origin)) + ")");
  }
  return choice;
}

Json parameter_json(const SamplingSettings& settings, const SamplingParameter& parameter) {
  const double value = parameter_value(settings, parameter);
  if (parameter.is_whole()) return static_cast<std::int64_t>(value);
  return *parse_double(number_text(value));
}

Json sampling_to_json(const SamplingSettings& s) {
  Json json = {{"seed", s.seed}, {"penalties_when_greedy", s.penalties_when_greedy}};
  for (const SamplingParameter& parameter : kSamplingParameters) {
    json[std::string(parameter_key(parameter))] = parameter_json(s, parameter);
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
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const std::string key(parameter_key(parameter));
    if (parameter.is_later && !json.contains(key)) continue;
    const double value = parameter.is_whole()
                             ? static_cast<double>(json_whole(
                                   json, key.c_str(), static_cast<std::int64_t>(parameter.least),
                                   static_cast<std::int64_t>(parameter.most), source))
                             : json_get<double>(json, key.c_str(), source);
    try {
      set_parameter(s, parameter, value);
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
