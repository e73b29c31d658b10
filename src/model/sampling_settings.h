// What can be said about sampling, as a struct and as a table with a row for each of its knobs.
// From the table come flags and their help, ranges and their errors, what is read from a model's
// generation_config and kept in its .leq file, what a saved chat holds, and the rule by which a
// backend draws. So a new knob is a field and a row here, and its arithmetic: a field of SampleRule
// and a step in backend/sample.cpp, and in cuda/kernels/sample/sample_select.cuh or a word in
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

#include "backend/sample.h"

namespace leq {

// What is added to one token's logit; kNoLogit: it is never drawn.
struct LogitBias {
  std::int32_t id = 0;
  float bias = 0;

  bool operator==(const LogitBias&) const = default;
};

// The defaults are those of a run that neither flags nor the model's generation_config change.
struct SamplingSettings {
  float temperature = 0.8f;     // 0: the token of the largest raw logit
  int top_k = 40;               // keeps the k largest logits; 0 or -1: all
  float top_p = 0.95f;          // keeps the shortest prefix with this share of probability; 1: all
  float min_p = 0.05f;          // drops tokens less probable than this times the first; 0: none
  float repeat_penalty = 1.0f;  // 1: none
  int repeat_last_n = 64;       // how many of the last tokens are penalised; 0: none, -1: all
  float presence_penalty = 0.0f;   // subtracted once from each token that occurred
  float frequency_penalty = 0.0f;  // subtracted for each time that it occurred
  float typical_p = 1.0f;          // keeps the most typical tokens with this share; 1: all
  float top_n_sigma = 0.0f;        // drops logits so many deviations below the first; 0 or -1: none
  float xtc_probability = 0.0f;    // how often the most probable tokens are left out; 0: never
  float xtc_threshold = 0.1f;      // those of this probability, but the last; above 0.5: none
  float dry_multiplier = 0.0f;     // what a repeated sequence costs; 0: nothing
  float dry_base = 1.75f;          // how the cost grows with each token of the sequence
  int dry_allowed_length = 2;      // the longest sequence that costs only the multiplier
  int dry_penalty_last_n = -1;     // where sequences are looked for; 0: nowhere, -1: everywhere
  int mirostat = 0;                // its version, 1 or 2, in place of the cuts; 0: off
  float mirostat_lr = 0.1f;        // how fast it follows
  float mirostat_ent = 5.0f;       // the surprise that it aims at, in bits
  std::vector<LogitBias> logit_bias = {};  // acts at temperature 0 too
  // Texts over which no repeated sequence reaches.
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  // At temperature 0 penalties act only where the user asked for them, not where a model's
  // generation_config has some.
  bool penalties_when_greedy = false;
  std::uint64_t seed = 0;
};

enum class KnobRole : std::uint8_t {
  temperature,
  cut,        // leaves out improbable tokens, which changes nothing at temperature 0
  extra_cut,  // a cut that is off by default
  penalty,    // off by default; at temperature 0 it acts where the user asks for it
  detail,     // of penalties or extra cuts
};

struct SamplingKnob {
  std::string_view name;  // of the field; also its key in a .leq file
  std::variant<float SamplingSettings::*, int SamplingSettings::*> field;
  // Where a backend finds it; negative whole numbers come there as 0.
  std::variant<std::monostate, float SampleRule::*, std::int32_t SampleRule::*> rule;
  KnobRole role = KnobRole::cut;
  double least = 0, most = 0;        // both allowed
  std::string_view range = {};       // the same in words
  std::string_view value_name = {};  // "N", for help
  std::string_view help = {};
  std::string_view config_key = {};  // in generation_config.json; empty: models do not say it
  std::string_view short_name = {};  // what people write, where it is not the name
  bool is_later = false;             // chats that were saved before it was there lack it

  bool is_whole() const { return field.index() == 1; }
};

inline constexpr double kMostFinite = std::numeric_limits<float>::max();
inline constexpr double kAboveZero = std::numeric_limits<float>::denorm_min();
inline constexpr double kMostTokens = 1e9;

inline constexpr std::array kSamplingKnobs = {
    SamplingKnob{.name = "temperature",
                 .field = &SamplingSettings::temperature,
                 .rule = &SampleRule::temperature,
                 .role = KnobRole::temperature,
                 .least = 0,
                 .most = kMostFinite,
                 .range = "0 (always the most probable token) or more",
                 .value_name = "T",
                 .help = "temperature, 0 = always the most probable token",
                 .config_key = "temperature",
                 .short_name = "temp"},
    SamplingKnob{.name = "top_k",
                 .field = &SamplingSettings::top_k,
                 .rule = &SampleRule::top_k,
                 .least = -1,
                 .most = kMostTokens,
                 .range = "1 or more, or 0 for all tokens",
                 .value_name = "N",
                 .help = "keep the N most probable tokens, 0 = all",
                 .config_key = "top_k"},
    SamplingKnob{.name = "top_p",
                 .field = &SamplingSettings::top_p,
                 .rule = &SampleRule::top_p,
                 .least = 0,
                 .most = 1,
                 .range = "a number from 0 to 1 (off)",
                 .value_name = "P",
                 .help = "keep the most probable tokens that make up P together",
                 .config_key = "top_p"},
    SamplingKnob{.name = "min_p",
                 .field = &SamplingSettings::min_p,
                 .rule = &SampleRule::min_p,
                 .least = 0,
                 .most = 1,
                 .range = "a number from 0 (off) to 1",
                 .value_name = "P",
                 .help = "drop tokens less probable than P times the first",
                 .config_key = "min_p"},
    SamplingKnob{.name = "repeat_penalty",
                 .field = &SamplingSettings::repeat_penalty,
                 .rule = &SampleRule::repeat_penalty,
                 .role = KnobRole::penalty,
                 .least = kAboveZero,
                 .most = kMostFinite,
                 .range = "a number above 0, 1 for none",
                 .value_name = "X",
                 .help = "divide logits of the last tokens by X",
                 .config_key = "repetition_penalty"},
    SamplingKnob{.name = "repeat_last_n",
                 .field = &SamplingSettings::repeat_last_n,
                 .role = KnobRole::detail,
                 .least = -1,
                 .most = kMostTokens,
                 .range = "0 (off) or more, or -1 for all tokens",
                 .value_name = "N",
                 .help = "how many last tokens the penalties see, -1 = all"},
    SamplingKnob{.name = "presence_penalty",
                 .field = &SamplingSettings::presence_penalty,
                 .rule = &SampleRule::presence_penalty,
                 .role = KnobRole::penalty,
                 .least = -kMostFinite,
                 .most = kMostFinite,
                 .range = "a finite number",
                 .value_name = "X",
                 .help = "subtract X from logits of the last tokens"},
    SamplingKnob{.name = "frequency_penalty",
                 .field = &SamplingSettings::frequency_penalty,
                 .rule = &SampleRule::frequency_penalty,
                 .role = KnobRole::penalty,
                 .least = -kMostFinite,
                 .most = kMostFinite,
                 .range = "a finite number",
                 .value_name = "X",
                 .help = "subtract X for each time that a token occurred"},
    SamplingKnob{.name = "typical_p",
                 .field = &SamplingSettings::typical_p,
                 .rule = &SampleRule::typical_p,
                 .role = KnobRole::extra_cut,
                 .least = 0,
                 .most = 1,
                 .range = "a number from 0 to 1 (off)",
                 .value_name = "P",
                 .help = "keep the most typical tokens that make up P together",
                 .config_key = "typical_p",
                 .short_name = "typical",
                 .is_later = true},
    SamplingKnob{.name = "top_n_sigma",
                 .field = &SamplingSettings::top_n_sigma,
                 .rule = &SampleRule::top_n_sigma,
                 .role = KnobRole::extra_cut,
                 .least = -1,
                 .most = kMostFinite,
                 .range = "a number above 0, or 0 or -1 for off",
                 .value_name = "N",
                 .help = "keep logits within N standard deviations of the largest, 0 = off",
                 .short_name = "top_nsigma",
                 .is_later = true},
    SamplingKnob{.name = "xtc_probability",
                 .field = &SamplingSettings::xtc_probability,
                 .rule = &SampleRule::xtc_probability,
                 .role = KnobRole::extra_cut,
                 .least = 0,
                 .most = 1,
                 .range = "a number from 0 (off) to 1",
                 .value_name = "P",
                 .help = "leave out the most probable tokens in this share of the draws",
                 .is_later = true},
    SamplingKnob{.name = "xtc_threshold",
                 .field = &SamplingSettings::xtc_threshold,
                 .rule = &SampleRule::xtc_threshold,
                 .role = KnobRole::detail,
                 .least = 0,
                 .most = 1,
                 .range = "a number from 0 to 1, above 0.5 for off",
                 .value_name = "P",
                 .help = "they are the tokens of probability P and more, but for the last one",
                 .is_later = true},
    SamplingKnob{.name = "dry_multiplier",
                 .field = &SamplingSettings::dry_multiplier,
                 .role = KnobRole::penalty,
                 .least = 0,
                 .most = kMostFinite,
                 .range = "0 (off) or more",
                 .value_name = "X",
                 .help = "subtract X * base^(length - allowed) from what would repeat a sequence",
                 .is_later = true},
    SamplingKnob{.name = "dry_base",
                 .field = &SamplingSettings::dry_base,
                 .role = KnobRole::detail,
                 .least = 1,
                 .most = kMostFinite,
                 .range = "a number of 1 or more",
                 .value_name = "X",
                 .help = "its base",
                 .is_later = true},
    SamplingKnob{.name = "dry_allowed_length",
                 .field = &SamplingSettings::dry_allowed_length,
                 .role = KnobRole::detail,
                 .least = 0,
                 .most = kMostTokens,
                 .range = "0 or more",
                 .value_name = "N",
                 .help = "sequences shorter than N tokens may repeat",
                 .is_later = true},
    SamplingKnob{.name = "dry_penalty_last_n",
                 .field = &SamplingSettings::dry_penalty_last_n,
                 .role = KnobRole::detail,
                 .least = -1,
                 .most = kMostTokens,
                 .range = "0 (off) or more, or -1 for all tokens",
                 .value_name = "N",
                 .help = "how many last tokens are searched for sequences, -1 = all",
                 .is_later = true},
    SamplingKnob{
        .name = "mirostat",
        .field = &SamplingSettings::mirostat,
        .rule = &SampleRule::mirostat,
        .role = KnobRole::extra_cut,
        .least = 0,
        .most = 2,
        .range = "0 (off), 1 or 2",
        .value_name = "N",
        .help = "hold the surprise of the tokens, by Mirostat 1 or 2, in place of all cuts",
        .is_later = true},
    SamplingKnob{.name = "mirostat_lr",
                 .field = &SamplingSettings::mirostat_lr,
                 .role = KnobRole::detail,
                 .least = 0,
                 .most = kMostFinite,
                 .range = "0 or more",
                 .value_name = "X",
                 .help = "how fast Mirostat follows, eta",
                 .is_later = true},
    SamplingKnob{.name = "mirostat_ent",
                 .field = &SamplingSettings::mirostat_ent,
                 .role = KnobRole::detail,
                 .least = 0,
                 .most = kMostFinite,
                 .range = "0 or more",
                 .value_name = "X",
                 .help = "the surprise that Mirostat aims at, tau, in bits",
                 .is_later = true},
};

// The knob's place in the table. Throws Error where there is none of this name.
std::size_t knob_index(std::string_view name);

// By its name or as people write it, with dashes or underscores; null where there is none.
const SamplingKnob* find_knob(std::string_view word);

// As people write it, in a settings line or as an option: "top-k", "temp".
std::string knob_word(const SamplingKnob& knob);
// As a saved chat has it: "top_k", "temp".
std::string_view knob_key(const SamplingKnob& knob);

double knob_value(const SamplingSettings& settings, const SamplingKnob& knob);
// Throws Error naming the knob and its range where the value is out of it, or is no number.
void set_knob(SamplingSettings& settings, const SamplingKnob& knob, double value);

// "15043+1", "29905-inf": a token, a sign and what is added to its logit. Throws Error naming the
// setting where it is anything else.
LogitBias parse_logit_bias(std::string_view text);
std::string logit_bias_text(const LogitBias& bias);

// Throws Error as set_knob does.
void check_settings(const SamplingSettings& settings);

// What backends need of it; the random number is left 0.
SampleRule sample_rule(const SamplingSettings& settings);

// A value for some of the knobs.
template <class T>
struct PerKnob {
  std::array<std::optional<T>, kSamplingKnobs.size()> values = {};  // in the table's order

  // Throws Error where no knob has this name.
  std::optional<T>& operator[](std::string_view name) { return values[knob_index(name)]; }
  const std::optional<T>& operator[](std::string_view name) const {
    return values[knob_index(name)];
  }
};

}  // namespace leq
