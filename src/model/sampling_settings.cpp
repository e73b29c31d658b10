#include "model/sampling_settings.h"

#include <algorithm>

#include "base/error.h"

namespace leq {
namespace {

// NaN is outside.
void check_range(const SamplingKnob& knob, double value) {
  require(value >= knob.least && value <= knob.most, Setting{knob.name}, " is ", value,
          ", expected ", knob.range);
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

}  // namespace

std::size_t knob_index(std::string_view name) {
  const auto found = std::ranges::find(kSamplingKnobs, name, &SamplingKnob::name);
  ensure(found != kSamplingKnobs.end(), "no sampling setting is called ", name);
  return static_cast<std::size_t>(found - kSamplingKnobs.begin());
}

std::string_view knob_key(const SamplingKnob& knob) {
  return knob.short_name.empty() ? knob.name : knob.short_name;
}

std::string knob_word(const SamplingKnob& knob) {
  std::string word(knob_key(knob));
  std::ranges::replace(word, '_', '-');
  return word;
}

double knob_value(const SamplingSettings& settings, const SamplingKnob& knob) {
  return std::visit([&](auto field) { return static_cast<double>(settings.*field); }, knob.field);
}

void set_knob(SamplingSettings& settings, const SamplingKnob& knob, double value) {
  if (!knob.is_whole()) value = static_cast<float>(value);  // 1.00000001 is 1
  check_range(knob, value);
  std::visit(
      [&](auto field) {
        settings.*field = static_cast<std::decay_t<decltype(settings.*field)>>(value);
      },
      knob.field);
}

void check_settings(const SamplingSettings& settings) {
  for (const SamplingKnob& knob : kSamplingKnobs) check_range(knob, knob_value(settings, knob));
}

SampleRule sample_rule(const SamplingSettings& settings) {
  SampleRule rule;
  for (const SamplingKnob& knob : kSamplingKnobs) {
    const double value = knob_value(settings, knob);
    std::visit(
        Overloaded{[](std::monostate) {},
                   [&](float SampleRule::*field) { rule.*field = static_cast<float>(value); },
                   [&](std::int32_t SampleRule::*field) {
                     rule.*field = static_cast<std::int32_t>(std::max(value, 0.0));
                   }},
        knob.rule);
  }
  return rule;
}

}  // namespace leq
