#include "model/pooling.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace leq
