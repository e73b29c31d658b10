// Sampling settings from where they may come: flags, LEQ_ARG_* variables, the model's
// generation_config, and the defaults; the first of these that names a setting wins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/sampler.h"
#include "model/open_model.h"

namespace leq {

enum class SettingOrigin : std::uint8_t { fallback, model, environment, flag, file };

struct GivenSetting {
  double value = 0;
  SettingOrigin origin = SettingOrigin::flag;
};

// What the user gave.
struct GivenSampling {
  std::optional<GivenSetting> temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n,
      presence_penalty, frequency_penalty;
};

struct SamplingChoice {
  SamplingSettings settings;  // without the seed
  // One entry for each setting, "temp 0.7 (model)"; settings that are off by default only where
  // something turned them on.
  std::vector<std::string> notes;
};

// Throws Error naming the setting where one is out of range.
SamplingChoice choose_sampling(const GivenSampling& given, const GenerationDefaults& model);

// The shortest text that reads back as the same number, independent of the locale.
std::string number_text(double value);

}  // namespace leq
