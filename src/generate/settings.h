// Combines sampling settings from flags, LEQ_ARG_* variables, the model's generation_config and the
// defaults; the first of these sources that specifies a setting determines it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/sampling_settings.h"

namespace leq {

enum class SettingOrigin : std::uint8_t { fallback, model, environment, flag };

struct GivenSetting {
  double value = 0;
  SettingOrigin origin = SettingOrigin::flag;
};

using GivenSampling = PerKnob<GivenSetting>;  // from the user

struct SamplingChoice {
  SamplingSettings settings;  // without the seed
  // One entry for each relevant setting, such as "temp 0.7 (model)"; penalties only if
  // enabled.
  std::vector<std::string> notes;
};

// Throws Error naming a setting that is out of range.
SamplingChoice choose_sampling(const GivenSampling& given, const PerKnob<double>& model);

// The shortest text that reads back as the same number, independent of the locale.
std::string number_text(double value);

}  // namespace leq
