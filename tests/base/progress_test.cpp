// Progress lines where stderr is no terminal: one for each tenth of the way.
#include "base/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace leq {
namespace {

TEST(Progress, PrintsALineAtEveryTenthOfTheWay) {
  testing::internal::CaptureStderr();
  {
    Progress progress("packing", 200);
    for (std::int64_t done = 1; done <= 200; ++done) progress.update(done, "note");
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10) << text;
  EXPECT_NE(text.find("packing: 20/200"), std::string::npos) << text;
  EXPECT_NE(text.find("packing: 200/200"), std::string::npos) << text;
  EXPECT_NE(text.find("note"), std::string::npos) << text;
}

}  // namespace
}  // namespace leq
