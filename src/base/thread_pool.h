// A pool of threads for data-parallel loops over small tasks; the caller works too. Each thread has
// a share of adjacent tasks, so that one loop's data is still in its core's caches in the next
// loop. A thread without tasks steals single tasks from other shares, first from those of its
// node, so that a core that another process occupies delays only one task. Shares follow measured
// speeds. At most as many threads work as there are cores; idle ones spin for a while, then sleep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace leq {

struct ThreadPlaces;

class ThreadPool {
 public:
  // threads >= 1, including the caller's; 0 = one for each core that this process may use. If the
  // system allows fewer, throws Error of kind no_memory that names the number that started.
  explicit ThreadPool(int threads);
  // One thread for each place, pinned to its node. From then on each caller of run is pinned, too.
  explicit ThreadPool(const ThreadPlaces& places);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // The number of working threads: at most one for each core, but two if two were requested.
  int working() const;

  // Calls body(task, worker) once for each task in [0, tasks), from several threads at once;
  // `worker`, in [0, threads()), selects a thread's scratch. Returns when all tasks are done. Not
  // reentrant: only one run at a time. The first exception of a body is rethrown here.
  template <class Body>
  void run(std::int64_t tasks, Body&& body) {
    if (tasks <= 0) return;
    run_tasks(
        tasks,
        [](void* context, std::int64_t task, int worker) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(task, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using TaskFunction = void (*)(void* context, std::int64_t task, int worker);
  void start(int threads);
  void run_tasks(std::int64_t tasks, TaskFunction function, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

// The number of cores that this process may use: the least of its affinity mask and the CFS quota of
// its control groups, at least 1.
int usable_cores();

// Shares of a loop's tasks, in proportion to the measured speed of each thread. Threads of about
// the same speed keep equal shares, so that a thread gets the same tasks in every loop.
class ShareBalance {
 public:
  explicit ShareBalance(int threads);

  // `done`: the tasks of a loop that each thread completed, as a measure of its speed. Shares
  // change when the averages over many loops differ from them by a quarter of a share.
  void update(std::span<const std::int64_t> done);

  // The first task of a thread's share of `tasks`; 0 <= thread <= threads. The share ends at the
  // first task of the next thread.
  std::int64_t first(int thread, std::int64_t tasks) const;

 private:
  std::vector<double> speeds_;  // averaged fractions of all tasks
  std::vector<double> begins_;  // [threads + 1], 0 to 1
  int loops_ = 0;               // loops since the shares changed
};

}  // namespace leq
