#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"

namespace leq {
namespace {

// A worker that finds nothing to do spins this often before it sleeps: about 50 us with the pause
// below. The gap between two parallel loops of a forward pass is a few microseconds.
constexpr int kSpins = 2000;

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t while_equal) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, while_equal,
            nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int waiters) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, waiters,
            nullptr, nullptr, 0);
}

}  // namespace

// One parallel loop is one epoch, whose tasks are cut into a share for each thread. A share packs
// the epoch's low 32 bits and the index of its next task, so that a thread that wakes late can
// never take a task of a loop that has ended: its compare-and-swap fails on the epoch.
struct ThreadPool::State {
  std::vector<std::thread> workers;
  int worker_count = 0;        // that there will be
  int cores = usable_cores();  // of which the caller has one
  alignas(64) std::atomic<std::uint32_t> epoch{0};
  std::atomic<std::uint32_t> sleepers{0};
  struct alignas(64) Share {
    std::atomic<std::uint64_t> next{0};
  };
  std::vector<Share> shares;
  alignas(64) std::atomic<std::int64_t> finished{0};
  std::atomic<std::int64_t> tasks{0};
  std::atomic<TaskFunction> function{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<bool> stop{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  int threads() const { return static_cast<int>(shares.size()); }

  // Where a share of so many tasks begins; it ends where the next one does.
  std::int64_t first_task(std::int64_t share, std::int64_t total) const {
    return total * share / threads();
  }

  // The next task of a share, if any is left.
  bool take_of(int share, std::uint32_t current, std::int64_t total, std::int64_t& task) {
    const std::int64_t end = first_task(share + 1, total);
    std::atomic<std::uint64_t>& next = shares[static_cast<std::size_t>(share)].next;
    std::uint64_t seen = next.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<std::int64_t>(seen & 0xffffffffu);
      if (static_cast<std::uint32_t>(seen >> 32) != current || index >= end) return false;
      if (next.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) {
        task = index;
        return true;
      }
    }
  }

  // A task of the worker's own share, or of the first one after it that has any left.
  bool take(int worker, std::uint32_t current, std::int64_t total, std::int64_t& task) {
    for (int i = 0; i < threads(); ++i) {
      if (take_of((worker + i) % threads(), current, total, task)) return true;
    }
    return false;
  }

  void drain(std::uint32_t current, int worker) {
    const std::int64_t total = tasks.load(std::memory_order_acquire);
    const TaskFunction run = function.load(std::memory_order_acquire);
    void* const argument = context.load(std::memory_order_acquire);
    for (std::int64_t task = 0; take(worker, current, total, task);) {
      try {
        run(argument, task, worker);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
      finished.fetch_add(1, std::memory_order_release);
    }
  }

  // Workers that are awake beyond one for each core left to them; negative: so many more may be. A
  // worker that waits must not spin on a core that another one could work on, and whoever is not
  // awake is not missed: others take its share.
  int surplus() const {
    const auto asleep = static_cast<int>(sleepers.load(std::memory_order_seq_cst));
    return worker_count - asleep - std::max(1, cores - 1);
  }

  void work_loop(int worker) {
    std::uint32_t seen = 0;
    for (;;) {
      std::uint32_t now = epoch.load(std::memory_order_acquire);
      for (int spin = 0; now == seen && spin < kSpins && surplus() <= 0; ++spin) {
        pause_briefly();
        now = epoch.load(std::memory_order_acquire);
      }
      if (now == seen) {
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        futex_wait(epoch, seen);
        sleepers.fetch_sub(1, std::memory_order_seq_cst);
        continue;
      }
      seen = now;
      if (stop.load(std::memory_order_acquire)) return;
      drain(seen, worker);
    }
  }

  void end_workers() {
    stop.store(true, std::memory_order_release);
    epoch.store(epoch.load() + 1, std::memory_order_seq_cst);
    futex_wake(epoch, worker_count);
    for (std::thread& worker : workers) worker.join();
  }

  // Publishes a new epoch and wakes who sleeps, as far as there are cores for them.
  void announce(std::uint32_t next) {
    epoch.store(next, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    const int room = -surplus();
    if (room > 0) futex_wake(epoch, room);
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = usable_cores();
  require(threads >= 1 && threads <= 1024, Setting{"threads"}, ": expected 1 to 1024, found ",
          threads);
  state_->shares = std::vector<State::Share>(static_cast<std::size_t>(threads));
  state_->worker_count = threads - 1;
  try {
    for (int worker = 1; worker < threads; ++worker) {
      state_->workers.emplace_back([state = state_.get(), worker] { state->work_loop(worker); });
    }
  } catch (const std::exception& error) {  // of the system, or no memory for the list
    const auto started = state_->workers.size() + 1;
    state_->end_workers();
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    fail(ErrorKind::no_memory, Setting{"threads"}, ": expected ", threads, ", the system lets ",
         started, " run (", no_memory ? "out of memory" : error.what(),
         "); ask for fewer, or raise its limits on memory and ", "processes");
  }
}

ThreadPool::~ThreadPool() { state_->end_workers(); }

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run_tasks(std::int64_t tasks, TaskFunction function, void* context) {
  if (state_->workers.empty() || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) function(context, task, 0);
    return;
  }
  ensure(tasks < (std::int64_t{1} << 31), "thread pool: ", tasks, " tasks in one loop");
  const std::uint32_t next = state_->epoch.load(std::memory_order_relaxed) + 1;
  // Closed before the loop changes: who still looks at the last loop and sees new values in the
  // three lines below sees this index too, and takes nothing.
  for (State::Share& share : state_->shares) {
    share.next.store(static_cast<std::uint64_t>(next) << 32 | 0xffffffffu,
                     std::memory_order_relaxed);
  }
  state_->finished.store(0, std::memory_order_release);
  state_->function.store(function, std::memory_order_release);
  state_->context.store(context, std::memory_order_release);
  state_->tasks.store(tasks, std::memory_order_release);
  for (std::int64_t i = 0; i < threads(); ++i) {
    const auto first = static_cast<std::uint64_t>(state_->first_task(i, tasks));
    state_->shares[static_cast<std::size_t>(i)].next.store(
        static_cast<std::uint64_t>(next) << 32 | first, std::memory_order_release);
  }
  state_->announce(next);
  state_->drain(next, 0);
  for (int spin = 0; state_->finished.load(std::memory_order_acquire) < tasks; ++spin) {
    if (spin < kSpins)
      pause_briefly();
    else
      std::this_thread::yield();  // a worker's core may belong to another process for a while
  }
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

}  // namespace leq
