// Every task runs exactly once, for all numbers of threads and tasks and with exceptions.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/topology.h"

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
    std::vector<std::int64_t> numbers(64, 0);  // not atomic, so that tsan would report a race
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
  for (const int threads : {2, 4, 32}) {  // with 32, most of them sleep
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

TEST(ThreadPool, TheShareOfAThreadSlowedDownShrinks) {
  ThreadPool pool(2);
  ASSERT_EQ(pool.working(), 2);
  constexpr std::int64_t kTasks = 40;
  // The share of the second thread begins at its first task, if both take one at the same time.
  const auto second_share = [&] {
    std::atomic<int> started = 0;
    std::int64_t first = -1;
    bool seen[2] = {};  // of each worker
    pool.run(kTasks, [&](std::int64_t task, int worker) {
      if (std::exchange(seen[worker], true)) return;
      if (worker == 1) first = task;
      ++started;
      while (started < 2) std::this_thread::yield();
    });
    return first;
  };
  EXPECT_EQ(second_share(), kTasks / 2);
  for (int loop = 0; loop < 400; ++loop) {
    std::atomic<std::int64_t> begun = 0, of_first = 0, of_second = 0;
    pool.run(kTasks, [&](std::int64_t, int worker) {
      ++begun;
      if (worker == 0) {
        ++of_first;
        return;
      }
      // This task ends after three tasks of the other thread, or when all tasks have begun.
      while (of_first < 3 * (of_second + 1) && begun < kTasks) std::this_thread::yield();
      ++of_second;
    });
    ASSERT_EQ(of_first + of_second, kTasks);
  }
  EXPECT_GT(second_share(), kTasks * 5 / 8);
}

// Returns threads on nodes with these distances; all of them use the cores of this machine.
ThreadPlaces places_at(const std::vector<std::vector<int>>& distances, int threads_each) {
  ThreadPlaces places;
  for (std::size_t node = 0; node < distances.size(); ++node) {
    places.topology.nodes.push_back({static_cast<int>(node), usable_core_list(), distances[node]});
    places.node_of.insert(places.node_of.end(), static_cast<std::size_t>(threads_each),
                          static_cast<int>(node));
  }
  return places;
}

TEST(ThreadPool, TakesTasksOfItsOwnNodeThenOfTheNearest) {
  const std::vector<std::vector<int>> distances = {{10, 30, 20}, {30, 10, 20}, {20, 20, 10}};
  const ThreadPlaces places = places_at(distances, 2);
  ThreadPool pool(places);
  ASSERT_EQ(pool.threads(), 6);
  ShareBalance balance(6);              // the pool's, by the same counts of tasks
  constexpr std::int64_t kTasks = 120;  // 20 in each thread's share
  std::size_t elsewhere = 0;
  for (int loop = 0; loop < 200; ++loop) {
    std::vector<std::vector<int>> taken(6);  // for each worker, the nodes of its tasks
    pool.run(kTasks, [&](std::int64_t task, int worker) {
      int owner = 0;
      while (balance.first(owner + 1, kTasks) <= task) ++owner;
      taken[static_cast<std::size_t>(worker)].push_back(
          places.node_of[static_cast<std::size_t>(owner)]);
    });
    std::vector<std::int64_t> done;
    for (const auto& nodes : taken) done.push_back(std::ssize(nodes));
    balance.update(done);
    for (std::size_t worker = 0; worker < taken.size(); ++worker) {
      const auto& from_own = distances[static_cast<std::size_t>(places.node_of[worker])];
      int farthest = 0;
      for (const int node : taken[worker]) {
        const int distance = from_own[static_cast<std::size_t>(node)];
        ASSERT_GE(distance, farthest) << "worker " << worker;
        farthest = distance;
        elsewhere += distance > 10 ? 1 : 0;
      }
    }
  }
  EXPECT_TRUE(elsewhere > 0 || usable_cores() >= 6);  // some threads are always late
}

TEST(ThreadPool, MoreThreadsThanCoresDoNotWork) {
  ThreadPool pool(64);
  EXPECT_EQ(pool.threads(), 64);
  EXPECT_EQ(pool.working(), std::min(64, std::max(2, usable_cores())));
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
      const ThreadPool pool(2);
      std::_Exit(3);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(error.kind() == ErrorKind::no_memory ? 1 : 4);
    }
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(1), "^threads: expected 2, the system lets 1 run");
}

TEST(ThreadPool, RefusesCountsOutOfRange) {
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(100'000), Error);
  EXPECT_EQ(ThreadPool(0).threads(), usable_cores());
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace leq
