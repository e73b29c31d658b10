// Charts must be well-formed, escape text, and draw shapes at the positions of their numbers.
#include "report/charts/charts.h"

#include <gtest/gtest.h>

#include <regex>

#include "report/charts/scale.h"

namespace leq {
namespace {

// Returns whether elements are opened and closed equally often.
bool balanced(const std::string& markup) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)([^<>]*)>");
  for (auto it = std::sregex_iterator(markup.begin(), markup.end(), tag);
       it != std::sregex_iterator(); ++it) {
    const std::string rest = (*it)[3];
    if ((*it)[1] == "/") {
      if (open.empty() || open.back() != (*it)[2]) return false;
      open.pop_back();
    } else if (!rest.ends_with('/')) {
      open.push_back((*it)[2]);
    }
  }
  return open.empty();
}

TEST(Charts, AllKindsAreWellFormedAndSayTheirNames) {
  const ChartPoint point = {3, 0.01, 0.005, 0.02};
  const std::vector<Svg> pending_samples = {
      scatter_chart({.title = "a & b",
                     .x = {"x", true},
                     .y = {"y", true},
                     .points = {{"<one>", point, 1}, {"two", {5, 0.1}, 2}},
                     .frontier = true}),
      line_chart({.title = "l", .x = {"x"}, .y = {"y"}, .series = {{"<one>", {point, {4, 1}}}}}),
      cloud_chart({.title = "c", .x = {"x"}, .y = {"y"}, .series = {{"<one>", {point, {4, 1}}}}}),
      bar_chart({.title = "b", .unit = "ms", .parts = {"p", "q"}, .rows = {{"<one>", {1, 2}}}}),
      interval_chart({.title = "i", .x = {"x"}, .rows = {{"<one>", 1, 0.5, 2}}, .mark = 1.5}),
      heat_chart({.title = "h", .rows = {"<one>"}, .columns = {"c"}, .cells = {{0.5}}}),
      radar_chart({.title = "r", .axes = {"a", "b", "c"}, .series = {{"<one>", {1, 0.5, 0}}}})};
  for (const Svg& drawing : pending_samples) {
    EXPECT_TRUE(balanced(drawing.markup())) << drawing.markup();
    EXPECT_NE(drawing.markup().find("&lt;one&gt;"), std::string::npos);
    EXPECT_EQ(drawing.markup().find("nan"), std::string::npos);
    EXPECT_TRUE(balanced(drawing.document()));
  }
}

TEST(Charts, NumbersThatAreNoneDoNotBreakADrawing) {
  const Svg empty = line_chart({.title = "l", .x = {"x", true}, .y = {"y", true}, .series = {}});
  EXPECT_TRUE(balanced(empty.markup()));
  const Svg one = interval_chart({.title = "i", .x = {"x"}, .rows = {{"a", 1, 1, 1}}});
  EXPECT_EQ(one.markup().find("nan"), std::string::npos);
  const Svg gaps = heat_chart(
      {.title = "h", .rows = {"a"}, .columns = {"c", "d"}, .cells = {{std::nullopt, 1.0}}});
  EXPECT_NE(gaps.markup().find("class=\"none\""), std::string::npos);
}

TEST(Charts, ScalesPlaceAndLabelValues) {
  const ChartScale linear(0, 10, false);
  EXPECT_DOUBLE_EQ(linear.place(2.5, 100, 200), 125);
  EXPECT_EQ(linear.ticks(5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  const ChartScale decades(0.001, 10, true);
  EXPECT_NEAR(decades.place(0.1, 0, 100), 50, 1e-9);
  for (const double tick : decades.ticks(4)) {
    EXPECT_GE(tick, 0.00099);
    EXPECT_LE(tick, 10.01);
  }
  EXPECT_GE(ChartScale(5, 5, false).ticks(3).size(), 1u);  // no range
  EXPECT_EQ(short_number(0.05), "0.05");
  EXPECT_EQ(short_number(1234), "1234");
  EXPECT_EQ(short_number(23456), "23k");
  EXPECT_EQ(short_number(4e8), "400M");
  EXPECT_EQ(short_number(1e37), "1e+37");
}

TEST(Charts, TheFrontierPassesThroughWhatNothingBeats) {
  const Svg drawing = scatter_chart({.title = "p",
                                     .x = {"x"},
                                     .y = {"y"},
                                     .points = {{"a", {1, 3}}, {"b", {2, 5}}, {"c", {3, 1}}},
                                     .frontier = true});
  const std::string markup = drawing.markup();
  const std::size_t at = markup.find("class=\"mark\" d=\"M");
  ASSERT_NE(at, std::string::npos);
  const std::string path = markup.substr(at, markup.find("/>", at) - at);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'V'), 1) << path;  // from a to c, past b
}

TEST(Charts, TextIsEscapedAndCoordinatesAreShort) {
  EXPECT_EQ(escaped("a<b>\"&\xFF"), "a&lt;b&gt;&quot;&amp;\xEF\xBF\xBD");
  EXPECT_EQ(coordinate(1.0 / 3), "0.33");
  EXPECT_EQ(coordinate(-0.001), "0");
  EXPECT_EQ(coordinate(2), "2");
}

}  // namespace
}  // namespace leq
