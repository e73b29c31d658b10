#include "generate/settings.h"

#include <array>
#include <charconv>
#include <string_view>

namespace leq {
namespace {

std::string_view origin_name(SettingOrigin origin) {
  constexpr std::array<std::string_view, 4> kNames = {"default", "model", "environment", "flag"};
  return kNames[static_cast<std::size_t>(origin)];
}

GivenSetting choose(const SamplingKnob& knob, const GivenSampling& given,
                    const PerKnob<double>& model) {
  if (const auto& setting = given[knob.name]) return *setting;
  if (const auto& value = model[knob.name]) return {*value, SettingOrigin::model};
  return {knob_value(SamplingSettings{}, knob), SettingOrigin::fallback};
}

// Whether to report a setting, because it has an effect or a user would expect it to have one.
bool is_worth_a_note(const SamplingKnob& knob, SettingOrigin origin, const SamplingSettings& all) {
  const bool greedy = all.temperature == 0;
  if (knob.role == KnobRole::temperature) return true;
  const bool is_cut = knob.role == KnobRole::cut || knob.role == KnobRole::extra_cut;
  if (is_cut && all.mirostat != 0 && knob.name != "mirostat") return false;  // Mirostat replaces it
  if (knob.role == KnobRole::cut) return !greedy;
  if (origin == SettingOrigin::fallback) return false;
  const bool is_off = knob_value(all, knob) == knob_value(SamplingSettings{}, knob);
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

SamplingChoice choose_sampling(const GivenSampling& given, const PerKnob<double>& model) {
  SamplingChoice choice;
  SamplingSettings& settings = choice.settings;
  for (const SamplingKnob& knob : kSamplingKnobs) {
    set_knob(settings, knob, choose(knob, given, model).value);
    settings.penalties_when_greedy |= knob.role == KnobRole::penalty && given[knob.name];
  }
  for (const SamplingKnob& knob : kSamplingKnobs) {
    const GivenSetting chosen = choose(knob, given, model);
    if (!is_worth_a_note(knob, chosen.origin, settings)) continue;
    choice.notes.push_back(knob_word(knob) + " " + number_text(chosen.value) + " (" +
                           std::string(origin_name(chosen.origin)) + ")");
  }
  return choice;
}

}  // namespace leq
