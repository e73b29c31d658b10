#include "model/pooling.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "errors.h"

namespace leq {
namespace {

TEST(Poolings, HaveTheirNamesAndNoOthers) {
  for (const Pooling pooling :
       {Pooling::mean, Pooling::last, Pooling::cls, Pooling::none, Pooling::rank}) {
    EXPECT_EQ(parse_pooling(pooling_name(pooling)), pooling);
  }
  for (const char* name : {"", "Mean", "last,cls"}) EXPECT_FALSE(parse_pooling(name)) << name;
  EXPECT_EQ(pooling_names("|"), "mean|last|cls|none|rank");
}

TEST(EmbeddingPrompts, AreTextsByName) {
  const auto read = [](const char* text) { return prompts_from_json(parse_json(text, "f"), "f"); };
  EXPECT_EQ(read(R"({"prompts": {"query": "find: "}})").at("query"), "find: ");
  EXPECT_TRUE(read("{}").empty());
  EXPECT_EQ(test::error_of([&] { read(R"({"prompts": ["a"]})"); }),
            "f: prompts: expected an object");
  EXPECT_EQ(test::error_of([&] { read(R"({"prompts": {"a": 1}})"); }),
            "f: prompts: a: expected a text");
}

}  // namespace
}  // namespace leq
