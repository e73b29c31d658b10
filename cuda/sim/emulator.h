// Runs CUDA kernels on the CPU. A CUDA thread is a fibre; a block is one OS thread that switches
// between its fibres. Exposes errors that hardware usually hides: shared memory is poisoned at the
// start, orders that CUDA leaves open are permuted by a seed, and a deadlocked block is reported
// instead of hanging (docs/cuda.md). Kernels use the functions of sim/vocabulary.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr std::size_t count() const { return std::size_t{x} * y * z; }
};

namespace simt {

// When the bytes of a copy arrive; CUDA allows any time between the issue and the wait. A wgmma
// takes effect at the opposite end, which exposes missing waits: at its issue, copies that the
// kernel did not wait for have not arrived; at its wait, operands may already be overwritten.
enum class CopyArrival : std::uint8_t { at_wait, at_issue };

// Orders that CUDA leaves open. Seed 0 selects plain ascending order; any other seed permutes lanes
// within warps, warps and blocks.
struct Schedule {
  std::uint64_t seed = 0;
  CopyArrival copy_arrival = CopyArrival::at_wait;
};
Schedule& schedule();  // of all launches; to be set only between launches

struct Grid {
  const char* kernel = "";     // for error reports
  const void* code = nullptr;  // address of the kernel
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic; poisoned at the start of each block
  // The limit of static and dynamic memory: 48 KB, or the larger limit set for the kernel.
  std::size_t shared_limit = 48 << 10;
  unsigned cluster = 1;  // number of neighbouring blocks in x that run together
  bool early = false;    // may start before the previous launch has ended
  int device = 0;        // whose workers run it; grids of two devices may overlap
};

// One block of a grid with `early` that was run up to wait_for_predecessor before the previous
// launch. Its reads before that call see old data, and its writes come too early.
struct EarlyBlock;
struct EarlyBlockCloser {
  void operator()(EarlyBlock* block) const noexcept;
};
using EarlyBlockOwner = std::unique_ptr<EarlyBlock, EarlyBlockCloser>;
EarlyBlockOwner begin_early(const Grid& grid, const std::function<void()>& body);
// Whether let_successor_start preceded wait_for_predecessor, so that the next launch may start.
bool lets_successor_start(const EarlyBlock& block);

// Runs `body` once for each thread, with blocks distributed over the device's workers
// (set_workers). Returns when all have ended. Aborts with a report on stderr if a launch is
// impossible (0 or > 1,024 threads, too much shared memory), if all threads of a block are blocked,
// if lanes of one warp are in different collectives, or if a thread of a grid with `early` ends
// without wait_for_predecessor. `begun` is continued on the OS thread that began it.
void run_grid(const Grid& grid, const std::function<void()>& body, EarlyBlockOwner begun = nullptr);
void set_workers(int device, int threads);  // 0 = one for each usable core

// Returns the number of launches by kernel address. Template instantiations count separately.
std::map<const void*, std::uint64_t> launch_counts();
// Returns the number of collectives of warps in all launches, a measure of their instructions.
std::uint64_t collective_count();

// The functions below are called by kernels.

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
unsigned thread_rank();  // x + y * X + z * X * Y

inline constexpr unsigned kWarpLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

// Kinds of warp collectives. It is a bug if lanes that name each other are in different kinds.
enum class Collective : std::uint8_t { sync, shuffle, vote, match, reduce, ldmatrix, mma, wgmma };

struct Slot {
  std::uint64_t words[8];
};

void sync_block();
// Waits until `threads` threads have arrived at this named barrier.
void sync_threads(unsigned barrier, unsigned threads);
void sync_cluster();
unsigned cluster_blocks();
unsigned cluster_rank();  // rank of this block in the cluster
void wait_for_predecessor();
void let_successor_start();
// Stores `mine`, waits for the lanes of `mask` that have not ended, and returns the slots of all 32
// lanes. Slots of lanes that did not take part are poison.
const Slot* collective(Collective kind, std::uint32_t mask, const Slot& mine);
// Returns the lanes that took part in this warp's last collective.
std::uint32_t collective_lanes();

// Lets other threads run until `holds(about, detail)` returns true.
void wait_until(bool (*holds)(const void* about, unsigned detail), const void* about,
                unsigned detail);

// Lets other threads run and, if no thread of this device can run, other devices.
void pause();
// Like pause(), and the other lanes of this warp that could run also yield.
void rest_warp();

// A store to memory of another device. It becomes visible when any thread of the block calls
// fence_system (at the latest when the block ends), or at once, depending on
// Schedule::copy_arrival.
void push(void* there, const void* value, unsigned bytes);
void fence_system();
long long clock();  // nanoseconds

void* dynamic_shared();
void* dynamic_shared_of(unsigned rank);  // of block `rank` of the cluster
void require_running(unsigned rank);     // because an ended block's shared memory is freed
std::size_t dynamic_shared_bytes();
// Returns the block's static shared variable of a call site, for which `key` is unique.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);
// Checks the launch against the number of threads that the kernel was compiled for.
void require_bounds(unsigned threads);

// Implements cp.async; with a null src it fills with zeros.
void copy_issue(void* shared, const void* global, unsigned bytes, unsigned filled);
void copy_commit();
void copy_wait(unsigned groups_left);

// The asynchronous operations in flight of this block (async.h).
struct AsyncWork;
AsyncWork& async_work();
AsyncWork& async_work_of(unsigned rank);

// Ends the program with a message that names kernel, block and thread.
[[noreturn]] void stop(const char* what);

}  // namespace simt
