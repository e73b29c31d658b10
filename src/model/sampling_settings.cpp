#include "model/sampling_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kMostBreakerBytes = 1000;

// Throws Error if the value is outside the knob's range; NaN counts as outside.
void check_range(const SamplingKnob& knob, double value) {
  require(value >= knob.least && value <= knob.most && value != knob.refused, Setting{knob.name},
          " is ", value, ", expected ", knob.range);
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang does not deduce aggregates yet

}  // namespace

std::size_t knob_index(std::string_view name) {
  const auto found = std::ranges::find(kSamplingKnobs, name, &SamplingKnob::name);
  ensure(found != kSamplingKnobs.end(), "no sampling setting is called ", name);
  return static_cast<std::size_t>(found - kSamplingKnobs.begin());
}

const SamplingKnob* find_knob(std::string_view word) {
  std::string name(word);
  std::ranges::replace(name, '-', '_');
  const auto* found = std::ranges::find_if(kSamplingKnobs, [&](const SamplingKnob& knob) {
    return knob.name == name || knob_key(knob) == name;
  });
  return found == kSamplingKnobs.end() ? nullptr : found;
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
  if (!knob.is_whole()) value = static_cast<float>(value);  // rounded: 1.00000001 becomes 1
  check_range(knob, value);
  std::visit(
      [&](auto field) {
        settings.*field = static_cast<std::decay_t<decltype(settings.*field)>>(value);
      },
      knob.field);
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
  const bool good = id >= 0 && id <= static_cast<std::int64_t>(kMostTokens) && size >= 0 &&
                    (size <= kMostFinite || size == double{-kNoLogit});
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
  for (const SamplingKnob& knob : kSamplingKnobs) check_range(knob, knob_value(settings, knob));
  for (const LogitBias& bias : settings.logit_bias) {
    require(bias.id >= 0 && bias.bias <= kMostFinite, Setting{"logit_bias"}, " is ", bias.bias,
            " for token ", bias.id, ", expected a number for an id of 0 or more");
  }
  for (const std::string& text : settings.dry_breakers) {
    require(!text.empty() && text.size() <= kMostBreakerBytes, Setting{"dry_sequence_breaker"},
            " has ", text.size(), " bytes, expected 1 to ", kMostBreakerBytes);
  }
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
