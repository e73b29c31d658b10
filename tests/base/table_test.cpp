// Tests tables printed as text for readers and as data for programs.
#include "base/table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace leq {
namespace {

Table sample() {
  Table table;
  table.add({{"test", "pp512"}, {"t/s", Cell(77.1234567890123, 2)}, {"runs", 5}});
  table.add({{"test", "tg128"}, {"t/s", Cell(5.0 / 3.0, 2)}, {"note", "a, \"b\" | ± c"}});
  return table;
}

TEST(Table, TextAlignsNumbersToTheRight) {
  EXPECT_EQ(sample().text(),
            "test     t/s  runs  note\n"
            "pp512  77.12     5\n"
            "tg128   1.67        a, \"b\" | ± c\n");
}

TEST(Table, MarkdownEscapesBars) {
  EXPECT_EQ(sample().markdown(),
            "| test  |   t/s | runs | note          |\n"
            "| ----- | ----: | ---: | ------------- |\n"
            "| pp512 | 77.12 |    5 |               |\n"
            "| tg128 |  1.67 |      | a, \"b\" \\| ± c |\n");
}

TEST(Table, CsvQuotesAndKeepsEveryDigit) {
  EXPECT_EQ(sample().csv(),
            "test,t/s,runs,note\n"
            "pp512,77.1234567890123,5,\n"
            "tg128,1.6666666666666667,,\"a, \"\"b\"\" | ± c\"\n");
}

TEST(Table, JsonReadsBackExactly) {
  const Json json = parse_json(sample().json(), "table");
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0].at("t/s").get<double>(), 77.1234567890123);
  EXPECT_EQ(json[0].at("runs").get<int>(), 5);
  EXPECT_TRUE(json[0].at("note").is_null());
  EXPECT_EQ(json[1].at("t/s").get<double>(), 5.0 / 3.0);
  EXPECT_EQ(json[1].at("note").get<std::string>(), "a, \"b\" | ± c");
}

TEST(Table, JsonHasNoNumberThatIsNotFinite) {
  EXPECT_EQ(json_object({{"b", Cell(std::nan(""), 2)}, {"a", Cell(HUGE_VAL, 2)}}),
            "{\n  \"b\": null,\n  \"a\": null\n}\n");
}

TEST(Table, EmptyTablesHaveNoRows) {
  EXPECT_TRUE(Table().empty());
  EXPECT_EQ(Table().json(), "[]\n");
}

}  // namespace
}  // namespace leq
