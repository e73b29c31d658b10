#include "base/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace leq {
namespace {

TEST(Progress, LogsNothingOfWorkThatIsShort) {
  testing::internal::CaptureStderr();
  {
    Progress progress("packing", 200);
    for (std::int64_t done = 1; done <= 200; ++done) progress.update(done, "note");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace leq
