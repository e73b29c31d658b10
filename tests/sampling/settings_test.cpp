// Tests which source of a sampling setting takes precedence, and the note about this.
#include "sampling/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace leq {
namespace {

bool has_note(const SamplingChoice& choice, const std::string& note) {
  return std::ranges::find(choice.notes, note) != choice.notes.end();
}

TEST(Settings, DefaultsHoldWhereNothingIsGiven) {
  const SamplingChoice choice = choose_sampling({}, {});
  EXPECT_EQ(choice.settings.temperature, 0.8f);
  EXPECT_EQ(choice.settings.top_k, 40);
  EXPECT_EQ(choice.settings.top_p, 0.95f);
  EXPECT_EQ(choice.settings.min_p, 0.05f);
  EXPECT_EQ(choice.settings.repeat_penalty, 1.0f);
  EXPECT_FALSE(choice.settings.penalties_when_greedy);
  EXPECT_EQ(choice.notes.size(), 4u);
  EXPECT_TRUE(has_note(choice, "temp 0.8 (default)"));
}

TEST(Settings, TheModelsOwnWinOverDefaults) {
  PerParameter<double> model;
  model["temperature"] = 0.6;
  model["top_k"] = 20;
  model["repeat_penalty"] = 1.05;
  const SamplingChoice choice = choose_sampling({}, model);
  EXPECT_EQ(choice.settings.temperature, 0.6f);
  EXPECT_EQ(choice.settings.top_k, 20);
  EXPECT_EQ(choice.settings.top_p, 0.95f);
  EXPECT_TRUE(has_note(choice, "top-k 20 (model)"));
  EXPECT_TRUE(has_note(choice, "repeat-penalty 1.05 (model)"));
  // At temperature 0, a model's penalty must not change the argmax.
  EXPECT_FALSE(choice.settings.penalties_when_greedy);
}

TEST(Settings, WhatTheUserGaveWinsOverTheModel) {
  PerParameter<double> model;
  model["temperature"] = 0.6;
  model["repeat_penalty"] = 1.05;
  GivenSampling given;
  given["temperature"] = {0.0, SettingOrigin::flag};
  given["repeat_penalty"] = {1.2, SettingOrigin::environment};
  const SamplingChoice choice = choose_sampling(given, model);
  EXPECT_EQ(choice.settings.temperature, 0.0f);
  EXPECT_EQ(choice.settings.repeat_penalty, 1.2f);
  EXPECT_TRUE(choice.settings.penalties_when_greedy);
  EXPECT_TRUE(has_note(choice, "temp 0 (flag)"));
  EXPECT_TRUE(has_note(choice, "repeat-penalty 1.2 (environment)"));
}

TEST(Settings, OnlyWhatHasAnEffectAtTemperatureZeroIsNoted) {
  PerParameter<double> model;
  model["top_p"] = 0.9;
  model["repeat_penalty"] = 1.05;
  GivenSampling given;
  given["temperature"] = {0.0, SettingOrigin::flag};
  EXPECT_EQ(choose_sampling(given, model).notes, std::vector<std::string>{"temp 0 (flag)"});
}

TEST(Settings, WhatIsOffByDefaultIsNotedWhereItIsGiven) {
  GivenSampling given;
  given["typical_p"] = {0.5, SettingOrigin::flag};
  given["dry_multiplier"] = {0.8, SettingOrigin::flag};
  EXPECT_EQ(choose_sampling(given, {}).notes.size(), 6u);
  EXPECT_TRUE(has_note(choose_sampling(given, {}), "typical 0.5 (flag)"));
  EXPECT_TRUE(has_note(choose_sampling(given, {}), "dry-multiplier 0.8 (flag)"));
  PerParameter<double> model;
  model["typical_p"] = 1;
  EXPECT_EQ(choose_sampling({}, model).notes.size(), 4u);
  given["temperature"] = {0.0, SettingOrigin::flag};
  EXPECT_EQ(choose_sampling(given, {}).notes,
            (std::vector<std::string>{"temp 0 (flag)", "dry-multiplier 0.8 (flag)"}));
}

TEST(Settings, MirostatStandsInPlaceOfTheCuts) {
  GivenSampling given;
  given["mirostat"] = {2, SettingOrigin::flag};
  given["mirostat_ent"] = {4, SettingOrigin::flag};
  EXPECT_EQ(choose_sampling(given, {}).notes,
            (std::vector<std::string>{"temp 0.8 (default)", "mirostat 2 (flag)",
                                      "mirostat-ent 4 (flag)"}));
}

TEST(Settings, RefusesAModelsSettingOutOfRange) {
  PerParameter<double> model;
  model["top_p"] = 1.5;
  EXPECT_THROW(choose_sampling({}, model), Error);
}

TEST(Settings, NumbersAreTheShortestThatReadBack) {
  EXPECT_EQ(number_text(0.8f), "0.8");
  EXPECT_EQ(number_text(40), "40");
  EXPECT_EQ(number_text(-1), "-1");
}

// A chat that is left has its own penalties_when_greedy: its penalties alone do not turn it on.
TEST(Settings, APenaltyOfAChatActsOnNoGreedyReply) {
  GivenSampling given;
  given["temperature"] = {0.0, SettingOrigin::flag};
  given["presence_penalty"] = {1.0, SettingOrigin::chat};
  EXPECT_FALSE(choose_sampling(given, {}).settings.penalties_when_greedy);
  EXPECT_EQ(choose_sampling(given, {}).settings.presence_penalty, 1.0f);
  EXPECT_EQ(choose_sampling(given, {}).notes, std::vector<std::string>{"temp 0 (flag)"});
  given["temperature"] = {0.5, SettingOrigin::chat};
  EXPECT_TRUE(has_note(choose_sampling(given, {}), "presence-penalty 1 (chat)"));
  EXPECT_TRUE(has_note(choose_sampling(given, {}), "temp 0.5 (chat)"));
  // Settings that are no penalties do not turn it on either.
  given = {};
  given["temperature"] = {0.0, SettingOrigin::flag};
  given["top_k"] = {5, SettingOrigin::flag};
  EXPECT_FALSE(choose_sampling(given, {}).settings.penalties_when_greedy);
}

}  // namespace
}  // namespace leq
