#include "tools/common/reply_options.h"

#include <algorithm>

namespace leq {
namespace {

using Kind = OptionKind;

constexpr double kMaxSeed = 9007199254740992.0;  // 2^53, exact in a double

// The help text of a setting: "keep the N most probable tokens, 0 = all (model's, or 40)"
std::string knob_help(const SamplingKnob& knob) {
  const std::string own = number_text(knob_value(SamplingSettings{}, knob));
  return std::string(knob.help) + (knob.config_key.empty() ? " (" : " (model's, or ") + own + ")";
}

std::string with_dashes(std::string_view name) {
  std::string word(name);
  std::ranges::replace(word, '_', '-');
  return word;
}

// choose_sampling checks non-integer values, together with the model's.
Option knob_option(const SamplingKnob& knob) {
  Option option = {.name = knob_word(knob),
                   .kind = knob.is_whole() ? Kind::integer : Kind::real,
                   .value_name = std::string(knob.value_name),
                   .help = knob_help(knob),
                   .group = "Sampling"};
  if (!knob.short_name.empty()) option.spellings = "--" + with_dashes(knob.name);
  if (knob.is_whole()) {
    option.minimum = knob.least;
    option.maximum = knob.most;
  }
  return option;
}

}  // namespace

std::vector<Option> sampling_options() {
  std::vector<Option> options = {
      {.name = "seed",
       .spellings = "-s",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "-1",
       .help = "seed of the random numbers; -1: a new one, which is printed",
       .group = "Sampling",
       .minimum = -1,
       .maximum = kMaxSeed}};
  for (const SamplingKnob& knob : kSamplingKnobs) options.push_back(knob_option(knob));
  return options;
}

GivenSampling read_sampling(const Options& options) {
  GivenSampling given;
  for (const SamplingKnob& knob : kSamplingKnobs) {
    const std::string name = knob_word(knob);
    if (!options.given(name)) continue;
    given[knob.name] = {
        knob.is_whole() ? static_cast<double>(options.integer(name)) : options.real(name),
        options.from_environment(name) ? SettingOrigin::environment : SettingOrigin::flag};
  }
  return given;
}

bool speculates(const Options& options) {
  const bool some = !options.declares("draft-max") || options.integer("draft-max") > 0;
  return some && options.text("speculate") != "off";
}

bool finds_drafts(const Options& options) { return options.text("speculate") != "mtp"; }

bool drafts_by_mtp(const Options& options, const Model& model) {
  if (!options.declares("speculate")) return false;
  const std::string& how = options.text("speculate");
  require(how != "mtp" || model.mtp() != nullptr, "--speculate mtp: ", model.file().name(),
          " has no head of multi-token prediction; use --speculate auto");
  const bool other = options.declares("model-draft") && options.given("model-draft");
  return speculates(options) && how != "ngram" && !other && model.mtp() != nullptr;
}

std::vector<Option> speculation_options(const std::string& group) {
  return {
      {.name = "speculate",
       .kind = Kind::text,
       .value_name = "HOW",
       .fallback = "auto",
       .help = "propose tokens and check several in one step, where that is faster; changes no "
               "token. ngram: what followed the same text earlier; mtp: by the model's head of "
               "multi-token prediction; auto: both",
       .group = group,
       .choices = {kSpeculations.begin(), kSpeculations.end()}},
      {.name = "model-draft",
       .spellings = "-md --spec-draft-model",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "a small model with the same vocabulary, which proposes draft tokens; no token of "
               "the reply changes",
       .group = group},
      {.name = "draft-max",
       .spellings = "--draft --draft-n --spec-draft-n-max",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "16",
       .help = "maximum draft tokens per step (at most 16)",
       .group = group,
       .minimum = 0,
       .maximum = 1024},
  };
}

}  // namespace leq
