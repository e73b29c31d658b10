// The emulator's functions for kernels: thread indices, barriers, collectives, shared memory,
// copies and pushes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/sim/block.h"

namespace simt {

constinit thread_local Block* block = nullptr;
constinit thread_local Cluster* cluster = nullptr;

namespace {

SIMT_UNSEEN void wait(State state, const void* key) {
  block->states[block->current] = state;
  release_key(key);
  to_main(block->threads[block->current].fibre, block->main);
  acquire_key(key);
}

}  // namespace

void complete_pushes() {
  for (const Push& push : block->pushes) std::memcpy(push.there, push.value, push.bytes);
  block->pushes.clear();
}

SIMT_UNSEEN dim3 thread_index() { return block->threads[block->current].index; }
SIMT_UNSEEN dim3 block_index() { return block->index; }
SIMT_UNSEEN dim3 block_size() { return block->grid->threads; }
SIMT_UNSEEN dim3 grid_size() { return block->grid->blocks; }
SIMT_UNSEEN unsigned thread_rank() { return block->current; }

SIMT_UNSEEN void sync_block() { wait(State::at_block, &block->barrier_keys[block->barriers % 4]); }

SIMT_UNSEEN void sync_threads(unsigned barrier, unsigned threads) {
  if (barrier == 0 || barrier >= kPartBarriers) stop("a barrier of threads is not one of 1 to 15");
  if (threads == 0 || threads % kWarpLanes != 0) stop("a barrier of threads is not one of warps");
  block->threads[block->current].part = {barrier, threads};
  wait(State::at_part, &block->part_keys[barrier][block->part_barriers[barrier] % 4]);
}

SIMT_UNSEEN void wait_for_predecessor() {
  block->threads[block->current].waited = true;
  if (!cluster->predecessor_ended) wait(State::at_predecessor, &cluster->predecessor_key);
}
SIMT_UNSEEN void let_successor_start() { cluster->lets_successor_start = true; }
SIMT_UNSEEN void sync_cluster() {
  wait(State::at_cluster, &cluster->barrier_keys[cluster->barriers % 4]);
}
SIMT_UNSEEN unsigned cluster_blocks() { return block->grid->cluster; }
SIMT_UNSEEN unsigned cluster_rank() { return block->index.x % block->grid->cluster; }

SIMT_UNSEEN const Slot* collective(Collective kind, std::uint32_t mask, const Slot& mine) {
  const unsigned lane = block->current % kWarpLanes;
  Thread& me = block->threads[block->current];
  Warp& warp = block->warps[block->current / kWarpLanes];
  if ((mask >> lane & 1u) == 0) stop("a lane calls a collective whose mask leaves it out");
  warp.deposited[lane] = mine;
  me.kind = kind;
  me.mask = mask;
  wait(State::at_warp, &warp.keys[warp.collectives % 4]);
  return warp.seen;
}

SIMT_UNSEEN void wait_until(bool (*holds)(const void* about, unsigned detail), const void* about,
                            unsigned detail) {
  if (holds(about, detail)) return;
  Thread& me = block->threads[block->current];
  me.condition = {holds, about, detail};
  block->states[block->current] = State::at_condition;
  to_main(me.fibre, block->main);
}

SIMT_UNSEEN void pause() {
  block->states[block->current] = State::at_rest;
  to_main(block->threads[block->current].fibre, block->main);
}

SIMT_UNSEEN void rest_warp() {
  const std::size_t first = block->current / kWarpLanes * kWarpLanes;
  const std::size_t end = std::min(first + kWarpLanes, block->threads.size());
  for (std::size_t i = first; i < end; ++i) {
    State& state = block->states[i];
    if (state == State::ready) state = State::at_rest;
  }
  to_main(block->threads[block->current].fibre, block->main);
}

void push(void* there, const void* value, unsigned bytes) {
  if (reinterpret_cast<std::uintptr_t>(there) % bytes != 0) stop("a push is not aligned");
  Push made = {there, bytes, {}};
  std::memcpy(made.value, value, bytes);
  if (schedule().copy_arrival == CopyArrival::at_issue) {
    std::memcpy(there, value, bytes);
  } else {
    block->pushes.push_back(made);
  }
}
void fence_system() { complete_pushes(); }

long long clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

SIMT_UNSEEN std::uint32_t collective_lanes() { return block->threads[block->current].arrived; }

SIMT_UNSEEN void require_running(unsigned rank) {
  if (rank >= cluster->blocks.size()) stop("a block that the cluster has not");
  for (const State state : cluster->blocks[rank]->states) {
    if (state != State::ended) return;
  }
  stop("shared memory of a block that has ended");
}

SIMT_UNSEEN void* dynamic_shared() { return dynamic_shared_of(cluster_rank()); }
SIMT_UNSEEN void* dynamic_shared_of(unsigned rank) {
  if (block->grid->shared_bytes == 0) stop("a kernel with dynamic shared memory launched without");
  return cluster->blocks[rank]->dynamic.get();
}

SIMT_UNSEEN std::size_t dynamic_shared_bytes() { return block->grid->shared_bytes; }
SIMT_UNSEEN AsyncWork& async_work() { return block->async; }
SIMT_UNSEEN AsyncWork& async_work_of(unsigned rank) { return cluster->blocks[rank]->async; }

SIMT_UNSEEN void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
  Block& mine = *block;
  for (unsigned i = 0; i < mine.static_count; ++i) {
    if (mine.statics[i].key == key) return mine.statics[i].data;
  }
  const std::size_t at = (mine.static_bytes + alignment - 1) / alignment * alignment;
  mine.static_bytes = at + bytes;
  if (mine.static_bytes > kStaticLimit) stop("over 48 KB of static shared memory");
  if (mine.static_count == kMaxStatics) stop("over 64 shared variables");
  if (mine.static_bytes + mine.grid->shared_bytes > mine.grid->shared_limit) {
    stop("static and dynamic shared memory exceed what the kernel was allowed");
  }
  unsigned char* data = static_cast<unsigned char*>(mine.static_memory.get()) + at;
  mine.statics[mine.static_count++] = {key, data};
  return data;
}

void require_bounds(unsigned threads) {
  if (block->grid->threads.count() > threads) stop("more threads than the kernel's launch bounds");
}

namespace {

void complete(const Copy& copy) {
  auto* to = static_cast<unsigned char*>(copy.shared);
  if (copy.filled > 0) std::memcpy(to, copy.global, copy.filled);
  if (copy.filled < copy.bytes) std::memset(to + copy.filled, 0, copy.bytes - copy.filled);
}

}  // namespace

void copy_issue(void* shared, const void* global, unsigned bytes, unsigned filled) {
  const auto addresses = reinterpret_cast<std::uintptr_t>(shared) |
                         (filled > 0 ? reinterpret_cast<std::uintptr_t>(global) : 0);
  if (addresses % bytes != 0) stop("cp.async: an address is not aligned to its size");
  const Copy copy = {shared, global, bytes, filled};
  if (schedule().copy_arrival == CopyArrival::at_issue) return complete(copy);
  block->threads[block->current].copies.push_back(copy);
}

void copy_commit() {
  Thread& me = block->threads[block->current];
  me.commits.push_back(me.copies.size());
}

void copy_wait(unsigned groups_left) {
  Thread& me = block->threads[block->current];
  if (me.commits.size() <= groups_left) return;
  const std::size_t groups = me.commits.size() - groups_left;
  const std::size_t completed = me.commits[groups - 1];
  for (std::size_t i = 0; i < completed; ++i) complete(me.copies[i]);
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(completed));
  me.commits.erase(me.commits.begin(), me.commits.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::size_t& end : me.commits) end -= completed;
}

void stop(const char* what) {
  if (block == nullptr) {
    std::fprintf(stderr, "simt: %s\n", what);
  } else {
    std::fprintf(stderr, "simt: %s: %s (block %u,%u,%u, thread %u)\n", block->grid->kernel, what,
                 block->index.x, block->index.y, block->index.z, block->current);
  }
  std::abort();
}

}  // namespace simt
