// Every task runs exactly once, whatever the threads, the sizes and the exceptions.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

constexpr int kThreads[] = {1, 2, 4, 8};

TEST(ThreadPool, RunsEveryTaskOnceAndNamesWorkersInRange) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const std::int64_t tasks : {0, 1, 2, 3, 7, 64, 1000, 20'000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      std::atomic<bool> worker_in_range = true;
      pool.run(tasks, [&](std::int64_t task, int worker) {
        runs[static_cast<std::size_t>(task)].fetch_add(1, std::memory_order_relaxed);
        if (worker < 0 || worker >= threads) worker_in_range = false;
      });
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
      EXPECT_TRUE(worker_in_range);
    }
  }
}

TEST(ThreadPool, NoWorkerRunsTwoTasksAtOnce) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
    std::atomic<bool> shared = false;
    for (int round = 0; round < 200; ++round) {
      pool.run(50, [&](std::int64_t, int worker) {
        auto& mine = busy[static_cast<std::size_t>(worker)];
        if (mine.fetch_add(1) != 0) shared = true;
        mine.fetch_sub(1);
      });
    }
    EXPECT_FALSE(shared);
  }
}

TEST(ThreadPool, PlainWritesOfATaskAreSeenByTheCallerAndByTheNextLoop) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    std::vector<std::int64_t> numbers(64, 0);  // no atomics: a race would show under tsan
    constexpr int kLoops = 1000;
    for (int loop = 0; loop < kLoops; ++loop) {
      pool.run(64, [&](std::int64_t task, int) {
        numbers[static_cast<std::size_t>(63 - task)] += task;
      });
      pool.run(64, [&](std::int64_t task, int) { numbers[static_cast<std::size_t>(task)] += 1; });
    }
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(numbers[i], kLoops * (64 - static_cast<std::int64_t>(i)));
    }
  }
}

TEST(ThreadPool, ManyShortLoopsLoseNothing) {
  constexpr int kLoops = 100'000;
  for (const int threads : {2, 4, 32}) {  // 32: most of them sleep
    ThreadPool pool(threads);
    std::vector<std::int64_t> sums(8, 0);
    std::int64_t expected = 0;
    for (int loop = 0; loop < kLoops; ++loop) {
      const std::int64_t tasks = 2 + loop % 7;
      pool.run(tasks,
               [&](std::int64_t task, int) { sums[static_cast<std::size_t>(task)] += loop; });
      expected += tasks * loop;
    }
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), expected);
  }
}

TEST(ThreadPool, WorkersThatSleptWakeAgain) {
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than a worker spins
    std::atomic<int> runs = 0;
    pool.run(16, [&](std::int64_t, int) { ++runs; });
    ASSERT_EQ(runs, 16);
  }
}

TEST(ThreadPool, UnevenTasksAreShared) {
  ThreadPool pool(4);
  std::atomic<std::int64_t> sum = 0;
  pool.run(40, [&](std::int64_t task, int) {
    if (task % 13 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    sum += task;
  });
  EXPECT_EQ(sum, 40 * 39 / 2);
}

TEST(ThreadPool, AThreadThatStandsStillKeepsOneTaskOfItsShare) {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    constexpr std::int64_t kTasks = 64;
    std::atomic<std::int64_t> others = 0;
    pool.run(kTasks, [&](std::int64_t task, int) {
      if (task > 0) {
        ++others;
        return;
      }
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (others < kTasks - 1 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      EXPECT_EQ(others, kTasks - 1);
    });
  }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAfterAllTasksAndThePoolGoesOn) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> runs = 0;
      EXPECT_THROW(pool.run(20,
                            [&](std::int64_t task, int) {
                              ++runs;
                              if (task % 5 == 3) throw std::runtime_error("task");
                            }),
                   std::runtime_error);
      if (threads > 1) {
        EXPECT_EQ(runs, 20);
      }
      runs = 0;
      pool.run(20, [&](std::int64_t, int) { ++runs; });
      EXPECT_EQ(runs, 20);
    }
  }
}

TEST(ThreadPool, AThreadThatCannotStartIsAnError) {
  const auto child = [&] {
    const rlimit none = {.rlim_cur = 1, .rlim_max = 1};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) std::_Exit(2);
    if (::getuid() == 0 && ::setuid(65534) != 0) std::_Exit(2);  // root has no limit
    try {
      const ThreadPool pool(8);
      std::_Exit(3);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(error.kind() == ErrorKind::no_memory ? 1 : 4);
    }
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(1),
              "^threads: expected 8, the system lets [1-7] run");
}

TEST(ThreadPool, RefusesCountsOutOfRange) {
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(100'000), Error);
  EXPECT_EQ(ThreadPool(0).threads(), usable_cores());
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace leq
