// The sampling settings as a struct, and as a table with one row per setting ("parameter"). The
// table generates command-line flags and their help, range checks, the defaults read from a model's
// generation_config and kept in its .leq file, the settings of saved chats, and the rule that
// backends use. A new parameter needs a field and a row here, a field of SampleRule, a step in
// sampling/sample.cpp, and either code in cuda/kernels/sample/sample.cu or an entry in
// draws_on_host().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "sampling/sample.h"

namespace leq {

// A number added to one token's logit; kNoLogit: the token is never drawn.
struct LogitBias {
  std::int32_t id = 0;
  float bias = 0;

  bool operator==(const LogitBias&) const = default;
};

// The defaults apply where neither a flag nor the model's generation_config sets a value.
struct SamplingSettings {
  float temperature = 0.8f;        // 0: always the token with the largest raw logit
  int top_k = 40;                  // keeps the k largest logits; 0 or -1: all
  float top_p = 0.95f;             // keeps the most probable tokens up to this total; 1: all
  float min_p = 0.05f;             // drops tokens below this times the largest probability; 0: none
  float repeat_penalty = 1.0f;     // 1: none
  int repeat_last_n = 64;          // number of last tokens that are penalised; 0: none, -1: all
  float presence_penalty = 0.0f;   // subtracted from the logit of each token that occurred
  float frequency_penalty = 0.0f;  // subtracted once for each occurrence
  float typical_p = 1.0f;          // keeps the most typical tokens up to this probability; 1: all
  float top_n_sigma = 0.0f;        // drops logits this many deviations below the top; 0 or -1: none
  float xtc_probability = 0.0f;    // probability of removing the top tokens; 0: never
  float xtc_threshold = 0.1f;   // removes tokens above this but the least likely; above 0.5: none
  float dry_multiplier = 0.0f;  // penalty for continuing a repeated sequence; 0: none
  float dry_base = 1.75f;       // factor on the penalty for each token of the sequence
  int dry_allowed_length = 2;   // longest sequence that gets only the multiplier
  int dry_penalty_last_n = -1;  // number of tokens searched for repeats; 0: none, -1: all
  int mirostat = 0;             // 2: Mirostat 2 instead of the cuts; 0: off
  float mirostat_lr = 0.1f;     // learning rate
  float mirostat_ent = 5.0f;    // target surprise in bits
  std::vector<LogitBias> logit_bias = {};  // also applied at temperature 0
  // Texts that end a repeated sequence.
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  // At temperature 0, penalties are applied only if the user set them, not if they come from a
  // model's generation_config.
  bool penalties_when_greedy = false;
  std::uint64_t seed = 0;

  bool operator==(const SamplingSettings&) const = default;
};

enum class ParameterRole : std::uint8_t {
  temperature,
  cut,        // removes improbable tokens; has no effect at temperature 0
  extra_cut,  // a cut that is off by default
  penalty,    // off by default; at temperature 0 used only if the user set it
  detail,     // a parameter of penalties or extra cuts
};

struct SamplingParameter {
  std::string_view name;  // name of the field; also its key in a .leq file
  std::variant<float SamplingSettings::*, int SamplingSettings::*> field;
  // The field that a backend reads; negative whole numbers are stored there as 0.
  std::variant<std::monostate, float SampleRule::*, std::int32_t SampleRule::*> rule;
  ParameterRole role = ParameterRole::cut;
  double least = 0, most = 0;          // inclusive
  std::optional<double> refused = {};  // a value between them that is out of range, too
  std::string_view range = {};         // the allowed values as text
  std::string_view value_name = {};    // "N", for help texts
  std::string_view help = {};
  std::string_view config_key = {};  // key in generation_config.json; empty: not set by models
  std::string_view short_name = {};  // name on the command line, if it is another one
  bool is_later = false;             // missing in older saved chats

  bool is_whole() const { return field.index() == 1; }
};

inline constexpr double kMaxFinite = std::numeric_limits<float>::max();
inline constexpr double kAboveZero = std::numeric_limits<float>::denorm_min();
inline constexpr double kMaxTokens = 1e9;

inline constexpr std::array kSamplingParameters = {
    SamplingParameter{.name = "temperature",
                      .field = &SamplingSettings::temperature,
                      .rule = &SampleRule::temperature,
                      .role = ParameterRole::temperature,
                      .least = 0,
                      .most = kMaxFinite,
                      .range = "0 (always the most probable token) or more",
                      .value_name = "T",
                      .help = "temperature, 0 = always the most probable token",
                      .config_key = "temperature",
                      .short_name = "temp"},
    SamplingParameter{.name = "top_k",
                      .field = &SamplingSettings::top_k,
                      .rule = &SampleRule::top_k,
                      .least = -1,
                      .most = kMaxTokens,
                      .range = "1 or more, or 0 for all tokens",
                      .value_name = "N",
                      .help = "keep the N most probable tokens, 0 = all",
                      .config_key = "top_k"},
    SamplingParameter{.name = "top_p",
                      .field = &SamplingSettings::top_p,
                      .rule = &SampleRule::top_p,
                      .least = 0,
                      .most = 1,
                      .range = "a number from 0 to 1 (off)",
                      .value_name = "P",
                      .help = "keep the most probable tokens with a total probability of P",
                      .config_key = "top_p"},
    SamplingParameter{.name = "min_p",
                      .field = &SamplingSettings::min_p,
                      .rule = &SampleRule::min_p,
                      .least = 0,
                      .most = 1,
                      .range = "a number from 0 (off) to 1",
                      .value_name = "P",
                      .help = "drop tokens less probable than P times the most probable one",
                      .config_key = "min_p"},
    SamplingParameter{.name = "repeat_penalty",
                      .field = &SamplingSettings::repeat_penalty,
                      .rule = &SampleRule::repeat_penalty,
                      .role = ParameterRole::penalty,
                      .least = kAboveZero,
                      .most = kMaxFinite,
                      .range = "a number above 0, 1 for none",
                      .value_name = "X",
                      .help = "repetition penalty: divide the logits of recent tokens by X",
                      .config_key = "repetition_penalty"},
    SamplingParameter{.name = "repeat_last_n",
                      .field = &SamplingSettings::repeat_last_n,
                      .role = ParameterRole::detail,
                      .least = -1,
                      .most = kMaxTokens,
                      .range = "0 (off) or more, or -1 for all tokens",
                      .value_name = "N",
                      .help = "number of recent tokens that the penalties consider, -1 = all"},
    SamplingParameter{.name = "presence_penalty",
                      .field = &SamplingSettings::presence_penalty,
                      .rule = &SampleRule::presence_penalty,
                      .role = ParameterRole::penalty,
                      .least = -kMaxFinite,
                      .most = kMaxFinite,
                      .range = "a finite number",
                      .value_name = "X",
                      .help = "subtract X from the logits of recent tokens"},
    SamplingParameter{.name = "frequency_penalty",
                      .field = &SamplingSettings::frequency_penalty,
                      .rule = &SampleRule::frequency_penalty,
                      .role = ParameterRole::penalty,
                      .least = -kMaxFinite,
                      .most = kMaxFinite,
                      .range = "a finite number",
                      .value_name = "X",
                      .help = "subtract X for each occurrence of a token among recent ones"},
    SamplingParameter{.name = "typical_p",
                      .field = &SamplingSettings::typical_p,
                      .rule = &SampleRule::typical_p,
                      .role = ParameterRole::extra_cut,
                      .least = 0,
                      .most = 1,
                      .range = "a number from 0 to 1 (off)",
                      .value_name = "P",
                      .help = "keep the most typical tokens with a total probability of P",
                      .config_key = "typical_p",
                      .short_name = "typical",
                      .is_later = true},
    SamplingParameter{.name = "top_n_sigma",
                      .field = &SamplingSettings::top_n_sigma,
                      .rule = &SampleRule::top_n_sigma,
                      .role = ParameterRole::extra_cut,
                      .least = -1,
                      .most = kMaxFinite,
                      .range = "a number above 0, or 0 or -1 for off",
                      .value_name = "N",
                      .help = "keep logits within N standard deviations of the largest, 0 = off",
                      .short_name = "top_nsigma",
                      .is_later = true},
    SamplingParameter{.name = "xtc_probability",
                      .field = &SamplingSettings::xtc_probability,
                      .rule = &SampleRule::xtc_probability,
                      .role = ParameterRole::extra_cut,
                      .least = 0,
                      .most = 1,
                      .range = "a number from 0 (off) to 1",
                      .value_name = "P",
                      .help = "XTC: probability of removing the most probable tokens",
                      .is_later = true},
    SamplingParameter{
        .name = "xtc_threshold",
        .field = &SamplingSettings::xtc_threshold,
        .rule = &SampleRule::xtc_threshold,
        .role = ParameterRole::detail,
        .least = 0,
        .most = 1,
        .range = "a number from 0 to 1, above 0.5 for off",
        .value_name = "P",
        .help = "XTC: remove tokens of probability P or more, except the least probable",
        .is_later = true},
    SamplingParameter{
        .name = "dry_multiplier",
        .field = &SamplingSettings::dry_multiplier,
        .role = ParameterRole::penalty,
        .least = 0,
        .most = kMaxFinite,
        .range = "0 (off) or more",
        .value_name = "X",
        .help = "DRY: subtract X * base^(length - allowed) from what repeats a sequence",
        .is_later = true},
    SamplingParameter{.name = "dry_base",
                      .field = &SamplingSettings::dry_base,
                      .role = ParameterRole::detail,
                      .least = 1,
                      .most = kMaxFinite,
                      .range = "a number of 1 or more",
                      .value_name = "X",
                      .help = "DRY: base of the penalty",
                      .is_later = true},
    SamplingParameter{.name = "dry_allowed_length",
                      .field = &SamplingSettings::dry_allowed_length,
                      .role = ParameterRole::detail,
                      .least = 0,
                      .most = kMaxTokens,
                      .range = "0 or more",
                      .value_name = "N",
                      .help = "DRY: sequences shorter than N tokens may repeat",
                      .is_later = true},
    SamplingParameter{.name = "dry_penalty_last_n",
                      .field = &SamplingSettings::dry_penalty_last_n,
                      .role = ParameterRole::detail,
                      .least = -1,
                      .most = kMaxTokens,
                      .range = "0 (off) or more, or -1 for all tokens",
                      .value_name = "N",
                      .help = "DRY: number of recent tokens to search for repeats, -1 = all",
                      .is_later = true},
    SamplingParameter{.name = "mirostat",
                      .field = &SamplingSettings::mirostat,
                      .rule = &SampleRule::mirostat,
                      .role = ParameterRole::extra_cut,
                      .least = 0,
                      .most = 2,
                      .refused = 1,
                      .range = "0 (off) or 2; version 1 is no longer supported",
                      .value_name = "N",
                      .help = "2 = Mirostat 2, which replaces all truncation; 0 = off",
                      .is_later = true},
    SamplingParameter{.name = "mirostat_lr",
                      .field = &SamplingSettings::mirostat_lr,
                      .role = ParameterRole::detail,
                      .least = 0,
                      .most = kMaxFinite,
                      .range = "0 or more",
                      .value_name = "X",
                      .help = "Mirostat: learning rate, eta",
                      .is_later = true},
    SamplingParameter{.name = "mirostat_ent",
                      .field = &SamplingSettings::mirostat_ent,
                      .role = ParameterRole::detail,
                      .least = 0,
                      .most = kMaxFinite,
                      .range = "0 or more",
                      .value_name = "X",
                      .help = "Mirostat: target entropy, tau, in bits",
                      .is_later = true},
};

// Index of the parameter in the table. Throws Error if there is no parameter of this name.
std::size_t parameter_index(std::string_view name);

// Finds a parameter by either name, with dashes or underscores; null if there is none.
const SamplingParameter* find_parameter(std::string_view word);

// The name in a settings line or as an option: "top-k", "temp".
std::string parameter_word(const SamplingParameter& parameter);
// The key in a saved chat: "top_k", "temp".
std::string_view parameter_key(const SamplingParameter& parameter);

double parameter_value(const SamplingSettings& settings, const SamplingParameter& parameter);
// Throws Error naming the parameter and its range if the value is not a number in the range.
void set_parameter(SamplingSettings& settings, const SamplingParameter& parameter, double value);

// Parses "15043+1" or "29905-inf": a token id, a sign and the number added to its logit. Throws
// Error naming the setting if the text has another form.
LogitBias parse_logit_bias(std::string_view text);
std::string logit_bias_text(const LogitBias& bias);

// Checks every setting; throws Error as set_parameter does.
void check_settings(const SamplingSettings& settings);

// The part of the settings that backends need; the random number is left at 0.
SampleRule sample_rule(const SamplingSettings& settings);

// A value for each of some parameters.
template <class T>
struct PerParameter {
  std::array<std::optional<T>, kSamplingParameters.size()> values = {};  // in the table's order

  // Throws Error if there is no parameter of this name.
  std::optional<T>& operator[](std::string_view name) { return values[parameter_index(name)]; }
  const std::optional<T>& operator[](std::string_view name) const {
    return values[parameter_index(name)];
  }
};

// Combines sampling settings from flags, LEQ_ARG_* variables, a saved chat, the model's
// generation_config and the defaults; the first of these sources that specifies a setting
// determines it.
enum class SettingOrigin : std::uint8_t { fallback, model, chat, environment, flag };
std::string_view origin_name(SettingOrigin origin);  // "default", "model"

struct GivenSetting {
  double value = 0;
  SettingOrigin origin = SettingOrigin::flag;
};

using GivenSampling = PerParameter<GivenSetting>;  // from the user

struct SamplingChoice {
  SamplingSettings settings;  // without the seed
  // One entry for each relevant setting, such as "temp 0.7 (model)"; penalties only if
  // enabled.
  std::vector<std::string> notes;
};

// Throws Error naming a setting that is out of range.
SamplingChoice choose_sampling(const GivenSampling& given, const PerParameter<double>& model);

// The shortest text that reads back as the same number, independent of the locale.
std::string number_text(double value);

// A setting's value: a whole number, or the shortest that reads back as the same float, such as
// 0.8.
Json parameter_json(const SamplingSettings& settings, const SamplingParameter& parameter);

// Sampling settings as JSON with one member for each setting, as in saved chats and receipts.

Json sampling_to_json(const SamplingSettings& settings);
// Throws Error naming `source` and the member that is missing, has another type or is out of range.
SamplingSettings sampling_from_json(const Json& json, const std::string& source);

}  // namespace leq
