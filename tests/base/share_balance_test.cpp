// Shares of a loop follow the speeds of its threads and do not change if the speeds are similar.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace leq {
namespace {

using Counts = std::vector<std::int64_t>;

constexpr std::int64_t kShareTasks = 960;

Counts shares_of(const ShareBalance& balance, int threads, std::int64_t tasks) {
  Counts shares;
  for (int i = 0; i < threads; ++i) {
    shares.push_back(balance.first(i + 1, tasks) - balance.first(i, tasks));
  }
  return shares;
}

// Simulates a loop: each thread completes tasks in proportion to its speed, with random noise.
Counts done_at(const std::vector<double>& speeds, Random& random, double noise) {
  std::vector<double> now;
  double sum = 0;
  for (const double speed : speeds) now.push_back(speed * (1 + noise * (random.uniform() - 0.5)));
  for (const double speed : now) sum += speed;
  Counts done;
  for (const double speed : now) done.push_back(std::llround(double(kShareTasks) * speed / sum));
  return done;
}

TEST(ShareBalance, BeginsWithEqualShares) {
  for (const int threads : {1, 2, 3, 16, 128}) {
    const ShareBalance balance(threads);
    EXPECT_EQ(balance.first(0, kShareTasks), 0);
    EXPECT_EQ(balance.first(threads, kShareTasks), kShareTasks);
    for (const std::int64_t share : shares_of(balance, threads, kShareTasks)) {
      EXPECT_LE(std::abs(share - kShareTasks / threads), 1) << threads;
    }
  }
}

TEST(ShareBalance, FollowsAThreadSlowedDown) {
  Random random(3);
  ShareBalance balance(4);
  for (int loop = 0; loop < 1000; ++loop) balance.update(done_at({1, 1, 0.25, 1}, random, 0.1));
  const Counts shares = shares_of(balance, 4, kShareTasks);
  // The shares are 1 / 3.25 and 0.25 / 3.25, with a tolerance of a quarter of an equal share.
  for (const std::size_t fast : {0, 1, 3}) EXPECT_NEAR(double(shares[fast]), 295, 60);
  EXPECT_NEAR(double(shares[2]), 74, 60);
  for (int loop = 0; loop < 1000; ++loop) balance.update(done_at({1, 1, 1, 1}, random, 0.1));
  for (const std::int64_t share : shares_of(balance, 4, kShareTasks)) {
    EXPECT_NEAR(double(share), 240, 60);  // and back again
  }
}

TEST(ShareBalance, CoversAllTasksInOrderWhateverWasLearned) {
  Random random(5);
  for (int trial = 0; trial < 50; ++trial) {
    const int threads = 1 + static_cast<int>(random.below(9));
    std::vector<double> speeds;
    for (int i = 0; i < threads; ++i)
      speeds.push_back(random.below(3) == 0 ? 0.0 : random.uniform());
    speeds[0] += 0.01;
    ShareBalance balance(threads);
    for (int loop = 0; loop < 300; ++loop) balance.update(done_at(speeds, random, 0.5));
    for (const std::int64_t tasks : {1, 2, 7, 1000}) {
      EXPECT_EQ(balance.first(0, tasks), 0);
      EXPECT_EQ(balance.first(threads, tasks), tasks);
      for (int i = 0; i < threads; ++i) {
        EXPECT_LE(balance.first(i, tasks), balance.first(i + 1, tasks));
      }
    }
  }
}

TEST(ShareBalance, StandsStillWhereSpeedsAreAlike) {
  Random random(7);
  ShareBalance balance(8);
  const Counts before = shares_of(balance, 8, kShareTasks);
  for (int loop = 0; loop < 5000; ++loop) {
    balance.update(done_at(std::vector<double>(8, 1.0), random, 0.6));
    ASSERT_EQ(shares_of(balance, 8, kShareTasks), before) << loop;
  }
}

TEST(ShareBalance, LearnsNothingFromFewTasks) {
  ShareBalance balance(4);
  const Counts before = shares_of(balance, 4, kShareTasks);
  for (int loop = 0; loop < 1000; ++loop) balance.update(Counts{15, 0, 0, 0});
  EXPECT_EQ(shares_of(balance, 4, kShareTasks), before);
}

}  // namespace
}  // namespace leq
