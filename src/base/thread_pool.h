// A pool of threads for data-parallel loops over small tasks. The caller works too. Each thread has
// a share of neighbouring tasks, so that the data of one loop is still in its core's caches in the
// next; a thread without tasks steals single ones from other shares, its own node's first, so that
// a core that is busy with another process delays one task only. Shares follow measured speed. No
// more threads work than there are cores; waiting ones spin for a bounded time, then sleep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace leq {

struct ThreadPlaces;

class ThreadPool {
 public:
  // threads >= 1, the caller's included; 0 = one for each core that this process may use. Throws
  // Error of kind no_memory saying how many run where the system lets no more.
  explicit ThreadPool(int threads);
  // One thread for each place, kept on its node; so is each caller of run, from then on.
  explicit ThreadPool(const ThreadPlaces& places);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // Of them, those that work: at most one for each core, but two where two were asked for.
  int working() const;
  // Where a working thread's share of so many tasks begins now; it ends where the next one's does.
  std::int64_t first_task(int worker, std::int64_t tasks) const;

  // Calls body(task, worker) once for each task in [0, tasks), from several threads at once;
  // worker in [0, threads()) names a thread's scratch. Returns when all are done. Not reentrant:
  // one run at a time, from one thread. The first exception of a body is rethrown here.
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

// Cores that this process may use (its affinity mask), at least 1.
int usable_cores();

}  // namespace leq
