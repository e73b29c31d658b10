#include "generate/settings.h"

#include <array>
#include <charconv>
#include <string_view>

namespace leq {
namespace {

std::string_view origin_name(SettingOrigin origin) {
  constexpr std::array<std::string_view, 5> kNames = {"default", "model", "environment", "flag",
                                                      "file"};
  return kNames[static_cast<std::size_t>(origin)];
}

struct Row {
  std::string_view name;
  const std::optional<GivenSetting>& given;
  std::optional<double> model;
  double fallback;
  bool quiet;  // not worth a note while it is at its default
};

GivenSetting choose(const Row& row) {
  if (row.given) return *row.given;
  if (row.model) return {*row.model, SettingOrigin::model};
  return {row.fallback, SettingOrigin::fallback};
}

}  // namespace

std::string number_text(double value) {
  std::array<char, 32> text;
  // Settings are kept as f32: 0.8f is "0.8", not the double next to it.
  const auto end = std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(value));
  return {text.data(), end.ptr};
}

SamplingChoice choose_sampling(const GivenSampling& given, const GenerationDefaults& model) {
  SamplingChoice choice;
  SamplingSettings& s = choice.settings;
  const std::optional<double> none;
  std::optional<double> model_top_k;
  if (model.top_k) model_top_k = static_cast<double>(*model.top_k);
  const auto take = [&](const Row& row) {
    const GivenSetting chosen = choose(row);
    if (!row.quiet || chosen.origin != SettingOrigin::fallback) {
      choice.notes.push_back(std::string(row.name) + " " + number_text(chosen.value) + " (" +
                             std::string(origin_name(chosen.origin)) + ")");
    }
    return chosen.value;
  };
  const auto real = [&](const Row& row) { return static_cast<float>(take(row)); };
  const auto whole = [&](const Row& row) { return static_cast<int>(take(row)); };
  s.temperature = real({"temp", given.temperature, model.temperature, s.temperature, false});
  s.top_k = whole({"top-k", given.top_k, model_top_k, double(s.top_k), false});
  s.top_p = real({"top-p", given.top_p, model.top_p, s.top_p, false});
  s.min_p = real({"min-p", given.min_p, model.min_p, s.min_p, false});
  if (s.temperature == 0) choice.notes.resize(1);  // the other three have no effect then
  s.repeat_penalty =
      real({"repeat-penalty", given.repeat_penalty, model.repeat_penalty, s.repeat_penalty, true});
  s.repeat_last_n =
      whole({"repeat-last-n", given.repeat_last_n, none, double(s.repeat_last_n), true});
  s.presence_penalty =
      real({"presence-penalty", given.presence_penalty, none, s.presence_penalty, true});
  s.frequency_penalty =
      real({"frequency-penalty", given.frequency_penalty, none, s.frequency_penalty, true});
  s.penalties_when_greedy = given.repeat_penalty.has_value() ||
                            given.presence_penalty.has_value() ||
                            given.frequency_penalty.has_value();
  if (s.temperature == 0 && !s.penalties_when_greedy) choice.notes.resize(1);
  check_settings(s);
  return choice;
}

}  // namespace leq
