// The state of a running block: its threads, warps, shared variables, and stores in flight.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/sim/async.h"
#include "cuda/sim/emulator.h"
#include "cuda/sim/fibre.h"

namespace simt {

enum class State : std::uint8_t {
  ready,
  at_block,
  at_part,
  at_cluster,
  at_warp,
  at_condition,
  at_predecessor,
  at_rest,
  ended
};

struct Copy {
  void* shared;
  const void* global;
  unsigned bytes, filled;
};

// A store to another device that is in flight.
struct Push {
  void* there;
  unsigned bytes;
  unsigned char value[16];
};

// The barrier for which a thread waits in State::at_part, and its number of threads.
struct PartBarrier {
  unsigned number, threads;
};
constexpr unsigned kPartBarriers = 16;

// The condition for which a thread waits in State::at_condition.
struct Condition {
  bool (*holds)(const void* about, unsigned detail);
  const void* about;
  unsigned detail;
};

struct Thread {
  Fibre fibre;
  Collective kind = Collective::sync;
  std::uint32_t mask = 0;     // lanes of the collective that it waits for
  std::uint32_t arrived = 0;  // lanes that took part in the last collective
  bool waited = false;        // whether it waited for the previous launch
  dim3 index;
  std::vector<Copy> copies;          // issued but not arrived, oldest first
  std::vector<std::size_t> commits;  // index after each commit group in `copies`
  Condition condition = {};
  PartBarrier part = {};
};

struct Warp {
  Slot deposited[kWarpLanes];
  Slot seen[kWarpLanes];  // values exchanged in completed collectives
  unsigned collectives = 0;
  char keys[4];
};

struct SharedVariable {
  const void* key;
  unsigned char* data;
};
constexpr std::size_t kStaticLimit = std::size_t{48} << 10;
constexpr unsigned kMaxStatics = 64;

struct Free {
  void operator()(void* data) const { std::free(data); }
};

// The state of a running block, or of one block of a running cluster.
struct Block {
  const Grid* grid = nullptr;
  const std::function<void()>* body = nullptr;
  dim3 index;
  std::vector<Thread> threads;
  std::vector<State> states;  // of the threads; apart, because the scheduler reads them often
  std::vector<Warp> warps;
  std::vector<unsigned> lane_order, warp_order;
  unsigned current = 0;
  unsigned barriers = 0;
  char barrier_keys[4];
  unsigned part_barriers[kPartBarriers] = {};
  char part_keys[kPartBarriers][4];
  char end_key = 0;
  Main main;
  std::unique_ptr<Stacks> stacks;
  std::unique_ptr<void, Free> dynamic;
  // These are plain arrays in memory of the OS thread, because fibres look them up and
  // ThreadSanitizer should only see the kernel's own accesses.
  std::unique_ptr<void, Free> static_memory;
  SharedVariable statics[kMaxStatics];
  unsigned static_count = 0;
  std::size_t static_bytes = 0;
  char start_key = 0;
  AsyncWork async;
  std::vector<Push> pushes;  // of all threads, oldest first
};

// Blocks that run together and access each other's shared memory.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  unsigned barriers = 0;
  char barrier_keys[4];
  bool predecessor_ended = true;
  bool lets_successor_start = false;
  char predecessor_key = 0;
};

// The block and cluster of the fibre that currently runs on this OS thread.
extern constinit thread_local Block* block;
extern constinit thread_local Cluster* cluster;

// Completes the pushes of all threads in the block.
void complete_pushes();

}  // namespace simt
