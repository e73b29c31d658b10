#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/control_group.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/system.h"
#include "base/topology.h"

namespace leq {
namespace {

constexpr double kNewest = 1.0 / 32;      // weight of the newest loop in the averages
constexpr int kFewestLoops = 64;          // loops between two changes of shares
constexpr std::int64_t kFewestTasks = 4;  // tasks per thread; loops with fewer are too noisy
constexpr double kTolerance = 0.25;

}  // namespace

ShareBalance::ShareBalance(int threads)
    : speeds_(static_cast<std::size_t>(threads), 1.0 / threads),
      begins_(static_cast<std::size_t>(threads) + 1) {
  for (int i = 0; i <= threads; ++i) begins_[static_cast<std::size_t>(i)] = double(i) / threads;
}

void ShareBalance::update(std::span<const std::int64_t> done) {
  const std::int64_t total = std::accumulate(done.begin(), done.end(), std::int64_t{0});
  const auto threads = std::ssize(speeds_);
  if (total < kFewestTasks * threads) return;
  for (std::size_t i = 0; i < speeds_.size(); ++i) {
    const double part = static_cast<double>(done[i]) / static_cast<double>(total);
    speeds_[i] += kNewest * (part - speeds_[i]);
  }
  if (++loops_ < kFewestLoops) return;
  bool differs = false;
  for (std::size_t i = 0; i < speeds_.size(); ++i) {
    const double share = begins_[i + 1] - begins_[i];
    differs |= std::abs(speeds_[i] - share) > kTolerance / static_cast<double>(threads);
  }
  if (!differs) return;
  loops_ = 0;
  for (std::size_t i = 0; i + 1 < speeds_.size(); ++i) begins_[i + 1] = begins_[i] + speeds_[i];
  begins_.back() = 1.0;
}

std::int64_t ShareBalance::first(int thread, std::int64_t tasks) const {
  const double at = begins_[static_cast<std::size_t>(thread)] * static_cast<double>(tasks);
  return static_cast<std::int64_t>(at + 0.5);
}

namespace {

// An idle worker spins this many times before it sleeps, about 50 us with the pause below. Between
// two parallel loops of a forward pass there are only a few microseconds.
constexpr int kSpins = 2000;
constexpr int kMaxThreads = 1024;

}  // namespace

// One parallel loop is one epoch, whose tasks are divided into one share per thread. A share packs
// the epoch's low 32 bits and the index of its next task, so that a thread that wakes late can
// never take a task of a finished loop: its compare-and-swap fails because of the epoch.
struct ThreadPool::State {
  std::vector<std::thread> workers;
  int threads = 1;  // requested number
  alignas(64) std::atomic<std::uint32_t> epoch{0};
  std::atomic<std::uint32_t> sleepers{0};
  struct alignas(64) Share {
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::int64_t> end{0};
    std::atomic<std::int64_t> done{0};  // tasks that its thread completed, from any share
  };
  std::vector<Share> shares;  // one per working thread
  ShareBalance balance{1};
  ThreadPlaces places;                              // one for each working thread
  std::vector<std::vector<int>> nodes_by_distance;  // node -> all nodes by distance, itself first
  alignas(64) std::atomic<std::int64_t> finished{0};
  std::atomic<TaskFunction> function{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<bool> stop{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  int working() const { return static_cast<int>(shares.size()); }

  // Pins the calling thread to a worker's node if there are several nodes.
  void pin(int worker) const {
    if (places.topology.nodes.empty()) return;
    const auto node = static_cast<std::size_t>(places.node_of[static_cast<std::size_t>(worker)]);
    run_on(places.topology.nodes[node].cores);
  }

  // Takes the next task of a share, if any is left.
  bool take_of(int from, std::uint32_t current, std::int64_t& task) {
    Share& share = shares[static_cast<std::size_t>(from)];
    std::uint64_t seen = share.next.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<std::int64_t>(seen & 0xffffffffu);
      const std::int64_t end = share.end.load(std::memory_order_acquire);
      if (static_cast<std::uint32_t>(seen >> 32) != current || index >= end) return false;
      if (share.next.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) {
        task = index;
        return true;
      }
    }
  }

  // Takes a task from the worker's own share, otherwise from the next share on its node that has
  // tasks left, otherwise from a share of another node, the nearest node first.
  bool take(int worker, std::uint32_t current, std::int64_t& task) {
    if (nodes_by_distance.empty()) return take_from(0, working(), worker, current, task);
    const int node = places.node_of[static_cast<std::size_t>(worker)];
    for (const int near : nodes_by_distance[static_cast<std::size_t>(node)]) {
      const int first = places.first_thread(near), last = places.first_thread(near + 1);
      if (take_from(first, last, worker, current, task)) return true;
    }
    return false;
  }
  bool take_from(int first, int last, int worker, std::uint32_t current, std::int64_t& task) {
    if (first >= last) return false;  // this node has no threads
    const int count = last - first;
    const int own = worker >= first && worker < last ? worker - first : worker % count;
    for (int i = 0; i < count; ++i) {
      if (take_of(first + (own + i) % count, current, task)) return true;
    }
    return false;
  }

  void drain(std::uint32_t current, int worker) {
    const TaskFunction run = function.load(std::memory_order_acquire);
    void* const argument = context.load(std::memory_order_acquire);
    Share& own = shares[static_cast<std::size_t>(worker)];
    std::int64_t did = 0;
    for (std::int64_t task = 0; take(worker, current, task); ++did) {
      try {
        run(argument, task, worker);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
    if (did == 0) return;
    own.done.store(did, std::memory_order_relaxed);
    // Added only once per loop, because all threads write this cache line and would contend for it.
    finished.fetch_add(did, std::memory_order_release);
  }

  void work_loop(int worker) {
    std::uint32_t seen = 0;
    pin(worker);
    for (;;) {
      std::uint32_t now = epoch.load(std::memory_order_acquire);
      for (int spin = 0; now == seen && spin < kSpins; ++spin) {
        pause_briefly();
        now = epoch.load(std::memory_order_acquire);
      }
      if (now == seen) {
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        system::wait_while(epoch, seen);
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
    system::wake_all(epoch);
    for (std::thread& worker : workers) worker.join();
  }

  // Publishes a new epoch and wakes the sleeping workers.
  void announce(std::uint32_t next) {
    epoch.store(next, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    system::wake_all(epoch);
  }

  // Divides `total` tasks into shares of epoch `next`. The old shares are closed before the loop's
  // fields change, so that a late thread that reads new fields with the old epoch also reads the
  // closed index and takes no task.
  void publish(std::uint32_t next, std::int64_t total, TaskFunction run, void* argument) {
    for (Share& share : shares) {
      share.next.store(std::uint64_t{next} << 32 | 0xffffffffu, std::memory_order_relaxed);
    }
    finished.store(0, std::memory_order_release);
    function.store(run, std::memory_order_release);
    context.store(argument, std::memory_order_release);
    for (int i = 0; i < working(); ++i) {
      Share& share = shares[static_cast<std::size_t>(i)];
      share.done.store(0, std::memory_order_relaxed);
      share.end.store(balance.first(i + 1, total), std::memory_order_release);
      const auto first = static_cast<std::uint64_t>(balance.first(i, total));
      share.next.store(std::uint64_t{next} << 32 | first, std::memory_order_release);
    }
  }

  void update() {
    std::int64_t done[kMaxThreads];
    for (std::size_t i = 0; i < shares.size(); ++i) {
      done[i] = shares[i].done.load(std::memory_order_relaxed);
    }
    balance.update({done, shares.size()});
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  start(threads == 0 ? usable_cores() : threads);
}

ThreadPool::ThreadPool(const ThreadPlaces& places) : state_(std::make_unique<State>()) {
  state_->places = places;
  const int nodes = static_cast<int>(places.topology.nodes.size());
  for (int node = 0; node < nodes; ++node)
    state_->nodes_by_distance.push_back(places.nearest(node));
  start(static_cast<int>(places.node_of.size()));
}

void ThreadPool::start(int threads) {
  require(threads >= 1 && threads <= kMaxThreads, Setting{"threads"}, ": expected 1 to ",
          kMaxThreads, ", found ", threads);
  // More threads than cores would slow each other down. Places never have more threads than cores.
  const int most = state_->nodes_by_distance.empty() ? std::max(2, usable_cores()) : threads;
  const int working = std::min(threads, most);
  state_->threads = threads;
  state_->shares = std::vector<State::Share>(static_cast<std::size_t>(working));
  state_->balance = ShareBalance(working);
  try {
    for (int worker = 1; worker < working; ++worker) {
      state_->workers.emplace_back([state = state_.get(), worker] { state->work_loop(worker); });
    }
  } catch (const std::exception& error) {  // from the system, or out of memory for the list
    const auto started = state_->workers.size() + 1;
    state_->end_workers();
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    fail(ErrorKind::no_memory, Setting{"threads"}, ": expected ", working, ", the system lets ",
         started, " run (", no_memory ? "out of memory" : error.what(),
         "); ask for fewer, or raise its limits on memory and ", "processes");
  }
}

ThreadPool::~ThreadPool() { state_->end_workers(); }

int ThreadPool::threads() const { return state_->threads; }

int ThreadPool::working() const { return state_->working(); }

void ThreadPool::run_tasks(std::int64_t tasks, TaskFunction function, void* context) {
  if (state_->workers.empty() || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) function(context, task, 0);
    return;
  }
  ensure(tasks < (std::int64_t{1} << 31), "thread pool: ", tasks, " tasks in one loop");
  thread_local const State* pinned_for = nullptr;
  if (pinned_for != state_.get()) {
    state_->pin(0);
    pinned_for = state_.get();
  }
  const std::uint32_t next = state_->epoch.load(std::memory_order_relaxed) + 1;
  state_->publish(next, tasks, function, context);
  state_->announce(next);
  state_->drain(next, 0);
  for (int spin = 0; state_->finished.load(std::memory_order_acquire) < tasks; ++spin) {
    if (spin < kSpins)
      pause_briefly();
    else
      std::this_thread::yield();  // another process may be using a worker's core for a while
  }
  state_->update();
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

int usable_cores() {
  static const int kCores = [] {
    const auto cores = static_cast<int>(usable_core_list().size());
    // Rounded down: a thread that waits for its share of time makes all others wait.
    const double quota = read_control_groups().cores.value_or(cores);
    return std::max(1, static_cast<int>(std::min<double>(cores, quota)));
  }();
  return kCores;
}

}  // namespace leq
