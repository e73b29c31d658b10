// Progress lines are for users who wait: short work that is logged to a file prints none.
#include "base/progress.h"

#include <gtest/gtest.h>

namespace leq {
namespace {

TEST(Progress, ShortWorkPrintsNothingWhereStderrIsNoTerminal) {
  testing::internal::CaptureStderr();
  {
    Progress progress("packing", 200, "rows");
    for (std::int64_t done = 1; done <= 200; ++done) progress.update(done, "note");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, TellsTheUnitAndTheTimeLeft) {
  EXPECT_EQ(progress_text("quantize", 747, 5952, "steps", 60, ""),
            "quantize: 747 of 5,952 steps, 6 min 58 s left");
  EXPECT_EQ(progress_text("perplexity", 1, 4, "windows", 20, "ppl 12.34"),
            "perplexity: 1 of 4 windows, 1 min 0 s left, ppl 12.34");
  EXPECT_EQ(progress_text("x", 1, 100, "steps", 0.5, ""), "x: 1 of 100 steps");
  EXPECT_EQ(progress_text("x", 0, 100, "steps", 50, ""), "x: 0 of 100 steps");
  EXPECT_EQ(progress_text("x", 100, 100, "steps", 50, "done"), "x: 100 of 100 steps, done");
  EXPECT_EQ(progress_text("x", 1, 3, "steps", 3600, ""), "x: 1 of 3 steps, 2 h 0 min left");
  // This run continues the work of an earlier run.
  EXPECT_EQ(progress_text("x", 110, 200, "steps", 5, "", 100), "x: 110 of 200 steps, 45 s left");
  EXPECT_EQ(progress_text("x", 100, 200, "steps", 5, "", 100), "x: 100 of 200 steps");
  EXPECT_EQ(progress_text("verify", 1'500'000'000, 3'000'000'000, "bytes", 9, ""),
            "verify: 1.50 GB of 3.00 GB, 9 s left");
}

TEST(Progress, WorkThatOthersSlowDownTakesATimeFromTo) {
  EXPECT_EQ(expected_time(45.4, 1), "about 45 s");
  EXPECT_EQ(expected_time(45, 1.2), "about 45 s");
  EXPECT_EQ(expected_time(45, 2), "45 s to 1 min 30 s, as other programs use the cores");
  EXPECT_EQ(expected_time(0.1, 1), "about 1 s");
  EXPECT_GE(slowdown_by_others(1), 1);
  EXPECT_GE(slowdown_by_others(1 << 20), 1000);  // there are not so many cores
}

}  // namespace
}  // namespace leq
