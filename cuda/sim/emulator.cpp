#include "cuda/sim/emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cuda/sim/block.h"
#include "cuda/sim/fibre.h"

namespace simt {
namespace {

constexpr unsigned char kPoison = 0xcd;
constexpr std::uint64_t kCanary = 0x5ca1ab1e0ddba11ull;

// Ends the program with a report if hardware would refuse the launch.
void require_launch(const Grid& grid) {
  const std::size_t threads = grid.threads.count();
  const char* wrong = nullptr;
  if (threads == 0 || threads > 1024) wrong = "a block has 1 to 1,024 threads";
  if (grid.threads.z > 64) wrong = "a block has at most 64 threads in z";
  if (grid.blocks.count() == 0) wrong = "a grid has at least one block";
  if (grid.blocks.y > 65535 || grid.blocks.z > 65535) wrong = "at most 65,535 blocks in y and z";
  if (grid.cluster == 0 || grid.cluster > 8 || grid.blocks.x % grid.cluster != 0) {
    wrong = "a cluster has 1 to 8 blocks, and the blocks in x are a multiple of it";
  }
  if (grid.cluster > 1 && grid.early) wrong = "clusters do not begin early here";
  if (grid.shared_bytes > grid.shared_limit)
    wrong = "more shared memory than the kernel was allowed";
  if (wrong == nullptr) return;
  std::fprintf(stderr, "simt: %s: launch refused: %s (%u,%u,%u blocks of %u,%u,%u, %zu bytes)\n",
               grid.kernel, wrong, grid.blocks.x, grid.blocks.y, grid.blocks.z, grid.threads.x,
               grid.threads.y, grid.threads.z, grid.shared_bytes);
  std::abort();
}

// Returns a permutation of 0 ... n-1; for seed 0 the identity.
std::vector<unsigned> order(unsigned n, std::uint64_t seed) {
  std::vector<unsigned> items(n);
  std::iota(items.begin(), items.end(), 0u);
  if (seed == 0) return items;
  for (unsigned i = n; i > 1; --i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(items[i - 1], items[(seed >> 33) % i]);
  }
  return items;
}

void* poisoned(std::size_t bytes, std::size_t alignment) {
  void* data = nullptr;
  if (posix_memalign(&data, std::max(alignment, sizeof(void*)), std::max<std::size_t>(bytes, 1))) {
    stop("no memory for shared variables");
  }
  std::memset(data, kPoison, bytes);
  return data;
}

SIMT_UNSEEN void mark_ended() {
  Thread& me = block->threads[block->current];
  if (block->grid->early && !me.waited) stop("a thread ended before ptx::wait_for_predecessor");
  block->states[block->current] = State::ended;
}

void enter() {
  entered(block->main);
  acquire_key(&block->start_key);
  (*block->body)();
  block->async.end_thread(block->current);
  mark_ended();
  Fibre& fibre = block->threads[block->current].fibre;
  Main& main = block->main;
  release_key(&block->end_key);  // nothing visible to ThreadSanitizer follows
  leave(fibre, main);
}

SIMT_UNSEEN void resume(unsigned i) {
  block->current = i;
  to_fibre(block->threads[i].fibre, block->main);
}

void start_block() {
  const unsigned n = static_cast<unsigned>(block->grid->threads.count());
  const dim3 size = block->grid->threads;
  std::ranges::fill(block->states, State::ready);
  for (unsigned i = 0; i < n; ++i) {
    Thread& thread = block->threads[i];
    thread.arrived = 0;
    thread.waited = false;
    thread.index = dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y));
    thread.copies.clear();
    thread.commits.clear();
    start(thread.fibre, block->stacks->at(i), enter);
  }
  if (block->grid->shared_bytes > 0) {
    std::memset(block->dynamic.get(), kPoison, block->grid->shared_bytes);
  }
  std::memset(block->static_memory.get(), kPoison, kStaticLimit);
  block->async.start_block(n);
  release_key(&block->start_key);
}

// Resumes the lanes of a warp whose collective is complete. Returns whether there were any.
SIMT_UNSEEN bool release_collectives(unsigned w) {
  const auto first = w * kWarpLanes;
  const auto lanes = std::min<std::size_t>(kWarpLanes, block->threads.size() - first);
  std::uint32_t live = 0, waiting = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const State state = block->states[first + lane];
    live |= static_cast<std::uint32_t>(state != State::ended) << lane;
    waiting |= static_cast<std::uint32_t>(state == State::at_warp) << lane;
  }
  bool any = false;
  while (waiting != 0) {
    const auto leader = static_cast<unsigned>(__builtin_ctz(waiting));
    const Thread& head = block->threads[first + leader];
    std::uint32_t arrived = 0;
    for (unsigned lane = leader; lane < lanes; ++lane) {
      const Thread& other = block->threads[first + lane];
      if ((waiting >> lane & 1u) == 0 || other.mask != head.mask) continue;
      if (other.kind != head.kind) {
        block->current = first + lane;
        stop("lanes of one warp meet in different collectives");
      }
      arrived |= 1u << lane;
    }
    waiting &= ~arrived;
    if (arrived != (head.mask & live)) continue;
    Warp& warp = block->warps[w];
    for (unsigned lane = 0; lane < lanes; ++lane) {
      if ((arrived >> lane & 1u) == 0) continue;
      Thread& thread = block->threads[first + lane];
      warp.seen[lane] = warp.deposited[lane];
      thread.arrived = arrived;
      block->states[first + lane] = State::ready;
    }
    ++warp.collectives;
    any = true;
  }
  return any;
}

SIMT_UNSEEN bool can_run(unsigned i) {
  State& state = block->states[i];
  if (state == State::at_condition) {
    const Condition& waits = block->threads[i].condition;
    if (waits.holds(waits.about, waits.detail)) state = State::ready;
  }
  return state == State::ready;
}

// Runs one warp until all its lanes wait. Returns whether a lane ran.
bool run_warp(unsigned w) {
  bool ran = false;
  for (;;) {
    bool any = false;
    for (const unsigned lane : block->lane_order) {
      const unsigned i = w * kWarpLanes + lane;
      if (i >= block->threads.size() || !can_run(i)) continue;
      resume(i);
      any = ran = true;
    }
    if (!any && !release_collectives(w)) return ran;
  }
}

// Returns the number of the block's threads that are in a state.
std::size_t count_of(State state) {
  return static_cast<std::size_t>(std::ranges::count(block->states, state));
}

[[noreturn]] void report_deadlock() {
  std::fprintf(stderr,
               "simt: %s: deadlock in block (%u,%u,%u): %zu threads ended, %zu at __syncthreads, "
               "%zu in a collective of their warp, %zu at an mbarrier, %zu at a barrier of the "
               "cluster, %zu at one of some of the threads\n",
               block->grid->kernel, block->index.x, block->index.y, block->index.z,
               count_of(State::ended), count_of(State::at_block), count_of(State::at_warp),
               count_of(State::at_condition), count_of(State::at_cluster),
               count_of(State::at_part));
  std::abort();
}

void make_ready(State waits) { std::ranges::replace(block->states, waits, State::ready); }

// Releases the threads at named barriers whose count of arrivals is complete. Returns whether there
// were any.
SIMT_UNSEEN bool release_parts() {
  if (count_of(State::at_part) == 0) return false;
  PartBarrier arrived[kPartBarriers] = {};  // number of arrived and of expected threads
  for (unsigned i = 0; i < block->threads.size(); ++i) {
    if (block->states[i] != State::at_part) continue;
    const Thread& thread = block->threads[i];
    PartBarrier& barrier = arrived[thread.part.number];
    block->current = i;
    if (barrier.number > 0 && barrier.threads != thread.part.threads) {
      stop("threads at a barrier wait for two numbers of them");
    }
    barrier.threads = thread.part.threads;
    if (++barrier.number > barrier.threads) stop("more threads at a barrier than it waits for");
  }
  bool any = false;
  for (unsigned i = 0; i < block->threads.size(); ++i) {
    if (block->states[i] != State::at_part) continue;
    const PartBarrier& barrier = arrived[block->threads[i].part.number];
    if (barrier.number < barrier.threads) continue;
    block->states[i] = State::ready;
    any = true;
  }
  for (unsigned n = 0; n < kPartBarriers; ++n) {
    if (arrived[n].number > 0 && arrived[n].number == arrived[n].threads) ++block->part_barriers[n];
  }
  return any;
}

// Runs the block until all its threads wait, then releases a complete __syncthreads. Returns
// whether any thread made progress.
bool run_block() {
  bool progressed = false;
  for (const unsigned w : block->warp_order) progressed = run_warp(w) || progressed;
  if (release_parts()) return true;
  const std::size_t waiting = count_of(State::at_block);
  if (waiting > 0 && count_of(State::ended) + waiting == block->threads.size()) {
    ++block->barriers;
    make_ready(State::at_block);
    progressed = true;
  }
  return progressed;
}

void end_block() {
  acquire_key(&block->end_key);
  complete_pushes();
  for (unsigned i = 0; i < block->threads.size(); ++i) {
    finish(block->threads[i].fibre);
    if (*block->stacks->canary(i) != kCanary) stop("a thread's stack overflowed");
  }
}

// Hidden from ThreadSanitizer, because kernels read the variable without synchronization.
SIMT_UNSEEN void switch_to(Block* one) { block = one; }
SIMT_UNSEEN void switch_to(Cluster* one) { cluster = one; }

template <class Action>
void for_each_block(Action action) {
  for (const auto& each : cluster->blocks) {
    switch_to(each.get());
    action();
  }
}

// Runs until all threads have ended, or until all that could run wait for the previous launch.
void run_cluster() {
  for (;;) {
    bool progressed = false;
    std::size_t threads = 0, ended = 0, waiting = 0, early = 0, resting = 0;
    for_each_block([&] {
      progressed = run_block() || progressed;
      threads += block->threads.size();
      ended += count_of(State::ended);
      waiting += count_of(State::at_cluster);
      early += count_of(State::at_predecessor);
      resting += count_of(State::at_rest);
    });
    if (ended == threads) break;
    if (waiting > 0 && ended + waiting == threads) {
      ++cluster->barriers;
      for_each_block([] { make_ready(State::at_cluster); });
    } else if (!progressed && early > 0) {
      if (!cluster->predecessor_ended) return;
      release_key(&cluster->predecessor_key);
      for_each_block([] { make_ready(State::at_predecessor); });
    } else if (!progressed && resting > 0) {
      std::this_thread::yield();
      for_each_block([] { make_ready(State::at_rest); });
    } else if (!progressed) {
      for (const auto& each : cluster->blocks) {
        switch_to(each.get());
        if (count_of(State::ended) < block->threads.size()) report_deadlock();
      }
    }
  }
  for_each_block(end_block);
}

struct Device {
  std::mutex lock;  // held while a grid runs, so that only one does
  std::unique_ptr<leq::ThreadPool> pool = std::make_unique<leq::ThreadPool>(1);
};

struct Emulator {
  std::mutex lock;  // guards the members below
  std::map<int, Device> devices;
  std::map<const void*, std::uint64_t> launches;
  std::uint64_t collectives = 0;
  Schedule schedule;
};

Emulator& emulator() {
  static Emulator instance;
  return instance;
}

Device& device(int index) {
  const std::lock_guard hold(emulator().lock);
  return emulator().devices[index];
}

// Unused stacks are kept, because mapping them costs more than running a small grid.
thread_local std::vector<std::unique_ptr<Stacks>> free_stacks;

std::unique_ptr<Stacks> take_stacks() {
  if (free_stacks.empty()) return std::make_unique<Stacks>(kCanary);
  std::unique_ptr<Stacks> stacks = std::move(free_stacks.back());
  free_stacks.pop_back();
  return stacks;
}

std::unique_ptr<Block> make_block(const Grid& grid, const std::function<void()>& body) {
  const std::uint64_t seed = emulator().schedule.seed;
  auto made = std::make_unique<Block>();
  made->grid = &grid;
  made->body = &body;
  made->threads.resize(grid.threads.count());
  made->states.resize(made->threads.size());
  made->warps.resize((made->threads.size() + kWarpLanes - 1) / kWarpLanes);
  made->lane_order = order(kWarpLanes, seed);
  made->warp_order = order(static_cast<unsigned>(made->warps.size()), seed * 3);
  made->stacks = take_stacks();
  if (grid.shared_bytes > 0) made->dynamic.reset(poisoned(grid.shared_bytes, 128));
  made->static_memory.reset(poisoned(kStaticLimit, 128));
  return made;
}

// Creates the blocks of a cluster, which all clusters on this OS thread reuse.
void set_up(Cluster& mine, const Grid& grid, const std::function<void()>& body) {
  for (unsigned i = 0; i < grid.cluster; ++i) {
    mine.blocks.push_back(make_block(grid, body));
    begin(mine.blocks.back()->main);
  }
}

void take_down(Cluster& mine) {
  const std::lock_guard hold(emulator().lock);
  for (const auto& each : mine.blocks) {
    free_stacks.push_back(std::move(each->stacks));
    for (const Warp& warp : each->warps) emulator().collectives += warp.collectives;
  }
}

void start_cluster(const Grid& grid, unsigned number) {
  unsigned at = number * grid.cluster;
  for_each_block([&] {
    block->index = dim3(at % grid.blocks.x, at / grid.blocks.x % grid.blocks.y,
                        at / (grid.blocks.x * grid.blocks.y));
    ++at;
    start_block();
  });
}

void leave_cluster() {
  switch_to(static_cast<Block*>(nullptr));
  switch_to(static_cast<Cluster*>(nullptr));
}

// Runs the clusters of a grid that are assigned to one OS thread; most have one block.
void run_clusters(const Grid& grid, const std::function<void()>& body,
                  const std::vector<unsigned>& clusters, std::int64_t first, std::int64_t step) {
  Cluster mine;
  set_up(mine, grid, body);
  switch_to(&mine);
  for (std::int64_t i = first; i < std::ssize(clusters); i += step) {
    start_cluster(grid, clusters[static_cast<std::size_t>(i)]);
    run_cluster();
  }
  take_down(mine);
  leave_cluster();
}

// Returns the order of clusters, which depends on the schedule's seed.
std::vector<unsigned> clusters_of(const Grid& grid) {
  return order(static_cast<unsigned>(grid.blocks.count() / grid.cluster),
               emulator().schedule.seed * 5);
}

}  // namespace

Schedule& schedule() { return emulator().schedule; }

void set_workers(int index, int threads) {
  Device& of = device(index);
  const std::lock_guard hold(of.lock);
  of.pool = std::make_unique<leq::ThreadPool>(threads);
}

std::map<const void*, std::uint64_t> launch_counts() {
  const std::lock_guard hold(emulator().lock);
  return emulator().launches;
}

std::uint64_t collective_count() {
  const std::lock_guard hold(emulator().lock);
  return emulator().collectives;
}

struct EarlyBlock {
  Grid grid;
  std::function<void()> body;
  unsigned at = 0;
  Cluster state;
};

void EarlyBlockCloser::operator()(EarlyBlock* begun) const noexcept {
  take_down(begun->state);
  delete begun;
}

EarlyBlockOwner begin_early(const Grid& grid, const std::function<void()>& body) {
  require_launch(grid);
  EarlyBlockOwner begun(new EarlyBlock{grid, body, clusters_of(grid).front(), {}});
  set_up(begun->state, begun->grid, begun->body);
  begun->state.predecessor_ended = false;
  switch_to(&begun->state);
  start_cluster(begun->grid, begun->at);
  run_cluster();
  leave_cluster();
  return begun;
}

bool lets_successor_start(const EarlyBlock& begun) { return begun.state.lets_successor_start; }

namespace {
void run_to_end(EarlyBlock& begun) {
  switch_to(&begun.state);
  cluster->predecessor_ended = true;
  for_each_block([] { begin(block->main); });
  run_cluster();
  leave_cluster();
}

}  // namespace

void run_grid(const Grid& grid, const std::function<void()>& body, EarlyBlockOwner begun) {
  require_launch(grid);
  {
    const std::lock_guard hold(emulator().lock);
    ++emulator().launches[grid.code];
  }
  Device& own = device(grid.device);
  const std::lock_guard hold(own.lock);
  std::vector<unsigned> clusters = clusters_of(grid);
  if (begun != nullptr) {
    run_to_end(*begun);
    std::erase(clusters, begun->at);
  }
  leq::ThreadPool& pool = *own.pool;
  const auto tasks = std::min<std::int64_t>(pool.threads(), std::ssize(clusters));
  pool.run(tasks, [&](std::int64_t task, int) { run_clusters(grid, body, clusters, task, tasks); });
}

}  // namespace simt
