// Tests the table of sampling settings: names, ranges and their errors, what backends receive, and
// values in a model's generation_config.json and file.
#include "sampling/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "errors.h"
#include "model/open_model.h"

namespace leq {
namespace {

using test::error_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

const SamplingParameter& parameter(std::string_view name) {
  return kSamplingParameters[parameter_index(name)];
}

TEST(SamplingSettings, RangesHoldTheirBordersAndNothingBeyond) {
  struct Case {
    const char* name;
    std::vector<double> allowed, refused;
  };
  const double most = std::numeric_limits<float>::max();
  const std::vector<Case> cases = {
      {"temperature", {0, 1e-40, most}, {-1e-40, kInfinity, kNan}},
      {"top_k", {-1, 0, 1, 1e9}, {-2, 1e9 + 1, 1e300, kNan}},
      {"top_p", {0, 1}, {-1e-40, 1.0000002, kNan}},
      {"min_p", {0, 1}, {-1e-40, 1.0000002, kNan}},
      {"repeat_penalty", {1e-40, most}, {0, -1, kInfinity, kNan}},
      {"repeat_last_n", {-1, 0, 1e9}, {-2, 1e9 + 1, kNan}},
      {"presence_penalty", {-most, 0, most}, {-kInfinity, kInfinity, kNan}},
      {"frequency_penalty", {-most, 0, most}, {-kInfinity, kInfinity, kNan}},
      {"typical_p", {0, 1}, {-1e-40, 1.0000002, kNan}},
      {"top_n_sigma", {-1, 0, 1.5, most}, {-1.1, kInfinity, kNan}},
      {"xtc_probability", {0, 1}, {-1e-40, 1.0000002, kNan}},
      {"xtc_threshold", {0, 1}, {-1e-40, 1.0000002, kNan}},
      {"dry_multiplier", {0, most}, {-1e-40, kInfinity, kNan}},
      {"dry_base", {1, most}, {0.99, kInfinity, kNan}},
      {"dry_allowed_length", {0, 1e9}, {-1, 1e9 + 1, kNan}},
      {"dry_penalty_last_n", {-1, 0, 1e9}, {-2, 1e9 + 1, kNan}},
      {"mirostat", {0, 2}, {-1, 1, 3, kNan}},
      {"mirostat_lr", {0, most}, {-1e-40, kInfinity, kNan}},
      {"mirostat_ent", {0, most}, {-1e-40, kInfinity, kNan}},
  };
  EXPECT_EQ(cases.size(), kSamplingParameters.size());
  for (const Case& c : cases) {
    for (const double value : c.allowed) {
      SamplingSettings settings;
      set_parameter(settings, parameter(c.name), value);
      EXPECT_EQ(parameter_value(settings, parameter(c.name)), double{static_cast<float>(value)})
          << c.name;
      EXPECT_NO_THROW(check_settings(settings));
    }
    for (const double value : c.refused) {
      SamplingSettings settings;
      EXPECT_NE(error_of([&] { set_parameter(settings, parameter(c.name), value); }), "")
          << c.name << " " << value;
      EXPECT_EQ(parameter_value(settings, parameter(c.name)),
                parameter_value({}, parameter(c.name)));
    }
  }
}

TEST(SamplingSettings, ErrorsNameTheParameterTheValueAndTheRange) {
  const auto refused = [](const char* name, double value) {
    SamplingSettings settings;
    return error_of([&] { set_parameter(settings, parameter(name), value); });
  };
  EXPECT_EQ(refused("temperature", -0.5),
            "temperature is -0.5, expected 0 (always the most probable token) or more");
  EXPECT_EQ(refused("top_p", 1.5), "top_p is 1.5, expected a number from 0 to 1 (off)");
  EXPECT_EQ(refused("repeat_last_n", -2),
            "repeat_last_n is -2, expected 0 (off) or more, or -1 for all tokens");
  EXPECT_EQ(refused("mirostat", 1),
            "mirostat is 1, expected 0 (off) or 2; version 1 is no longer supported");
}

TEST(SamplingSettings, EveryParameterHasAFieldOfItsOwn) {
  std::set<std::string> words;
  for (const SamplingParameter& changed : kSamplingParameters) {
    SamplingSettings settings;
    const double other_value = changed.name == "dry_base"   ? 3
                               : changed.name == "mirostat" ? 2
                               : changed.is_whole()         ? 1
                                                            : 0.5;
    set_parameter(settings, changed, other_value);
    int differences = 0;
    for (const SamplingParameter& other : kSamplingParameters) {
      differences += parameter_value(settings, other) != parameter_value({}, other);
    }
    EXPECT_EQ(differences, 1) << changed.name;
    words.insert(parameter_word(changed));
  }
  EXPECT_EQ(words,
            (std::set<std::string>{
                "temp", "top-k", "top-p", "min-p", "repeat-penalty", "repeat-last-n",
                "presence-penalty", "frequency-penalty", "typical", "top-nsigma", "xtc-probability",
                "xtc-threshold", "dry-multiplier", "dry-base", "dry-allowed-length",
                "dry-penalty-last-n", "mirostat", "mirostat-lr", "mirostat-ent"}));
  EXPECT_THROW(parameter_index("top-k"), Error);
  for (const char* word : {"temp", "temperature"})
    EXPECT_EQ(find_parameter(word), &parameter("temperature"));
  for (const char* word : {"typical", "typical-p", "typical_p"}) {
    EXPECT_EQ(find_parameter(word), &parameter("typical_p"));
  }
  EXPECT_EQ(find_parameter("tmp"), nullptr);
}

TEST(SamplingSettings, BackendsGetTheirRule) {
  const SamplingSettings settings = {.temperature = 0.1f,
                                     .top_k = 2,
                                     .top_p = 0.3f,
                                     .min_p = 0.4f,
                                     .repeat_penalty = 5,
                                     .presence_penalty = 6,
                                     .frequency_penalty = 7};
  const SampleRule rule = sample_rule(settings);
  EXPECT_EQ(rule.temperature, 0.1f);
  EXPECT_EQ(rule.top_k, 2);
  EXPECT_EQ(rule.top_p, 0.3f);
  EXPECT_EQ(rule.min_p, 0.4f);
  EXPECT_EQ(rule.repeat_penalty, 5);
  EXPECT_EQ(rule.presence_penalty, 6);
  EXPECT_EQ(rule.frequency_penalty, 7);
  EXPECT_EQ(sample_rule({.top_k = -1}).top_k, 0);
}

TEST(LogitBias, IsATokenASignAndANumber) {
  EXPECT_EQ(parse_logit_bias("15043+1"), (LogitBias{15043, 1}));
  EXPECT_EQ(parse_logit_bias("15043-1.5"), (LogitBias{15043, -1.5f}));
  EXPECT_EQ(parse_logit_bias("0-inf"), (LogitBias{0, -kInfinity}));
  EXPECT_EQ(parse_logit_bias("7+1e-3"), (LogitBias{7, 1e-3f}));
  for (const char* text : {"", "5", "+1", "5+", "5-", "5+inf", "5++1", "5+-1", "5--1", "5+1e99",
                           "x+1", "-1+1", "5+1x", "99999999999+1", "5-nan", "5+nan", "1.5+1"}) {
    EXPECT_TRUE(error_of([&] { parse_logit_bias(text); }).starts_with("logit_bias is '")) << text;
  }
}

TEST(LogitBias, IsWrittenAsItIsRead) {
  for (const char* text : {"15043+1", "29905-inf", "3-0.25", "3+1e+20", "0+0"}) {
    EXPECT_EQ(parse_logit_bias(logit_bias_text(parse_logit_bias(text))), parse_logit_bias(text));
  }
  EXPECT_EQ(logit_bias_text({3, -0.25f}), "3-0.25");
  EXPECT_EQ(logit_bias_text({3, 2}), "3+2");
  EXPECT_EQ(logit_bias_text({3, -kInfinity}), "3-inf");
}

TEST(GenerationDefaults, AreReadBackFromAFile) {
  GenerationDefaults defaults;
  defaults.sampling["temperature"] = 0.7;
  defaults.sampling["top_k"] = 20;
  defaults.sampling["repeat_penalty"] = 1.05;
  defaults.end_tokens = {2, 5};
  const Json json = generation_to_json(defaults);
  EXPECT_EQ(json.dump(),
            R"({"end_tokens":[2,5],"repeat_penalty":1.05,"temperature":0.7,"top_k":20})");
  const GenerationDefaults back = generation_from_json(json, "test");
  EXPECT_EQ(back.sampling.values, defaults.sampling.values);
  EXPECT_EQ(back.end_tokens, defaults.end_tokens);
  EXPECT_EQ(generation_to_json({}).dump(), R"({"end_tokens":[]})");
}

TEST(GenerationDefaults, ComeFromGenerationConfigByItsNames) {
  const Json json = parse_json(R"({"temperature": 1, "top_k": 50, "top_p": null, "min_p": 0.1,
      "repetition_penalty": 1.2, "repeat_penalty": 9, "presence_penalty": 3, "do_sample": true,
      "typical_p": 0.9})",
                               "test");
  const auto values = sampling_from_json(json, &SamplingParameter::config_key, "test");
  EXPECT_EQ(values["temperature"], 1.0);
  EXPECT_EQ(values["top_k"], 50.0);
  EXPECT_EQ(values["top_p"], std::nullopt);
  EXPECT_EQ(values["min_p"], 0.1);
  EXPECT_EQ(values["repeat_penalty"], 1.2);
  EXPECT_EQ(values["presence_penalty"], std::nullopt);  // models do not specify it
  EXPECT_EQ(values["typical_p"], 0.9);
}

TEST(GenerationDefaults, AreRefusedByTheirKey) {
  for (const char* text :
       {R"({"temperature": "hot"})", R"({"top_k": 1.5})", R"({"top_k": "4"})",
        R"({"end_tokens": 2})", R"({"end_tokens": ["2"]})", R"({"end_tokens": [4294967298]})",
        R"({"end_tokens": [18446744073709551615]})", R"({"top_k": 1000000000000})",
        R"({"top_p": 1.5})", R"({"min_p": -0.1})"}) {
    const std::string key = std::string(text).substr(2, std::string(text).find(':') - 3);
    const std::string error =
        error_of([&] { generation_from_json(parse_json(text, "text"), "x.leq"); });
    EXPECT_TRUE(error.starts_with("x.leq")) << error;
    EXPECT_NE(error.find(key), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace leq
