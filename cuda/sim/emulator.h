// Runs CUDA kernels on the CPU: a CUDA thread is a fibre, a block is one OS thread that switches
// between its fibres. Made to expose errors that hardware hides most of the time: shared memory
// starts poisoned, orders that CUDA leaves open are permuted by a seed, and a deadlocked block is
// reported instead of hanging (docs/cuda.md). The vocabulary of kernels is in sim/vocabulary.h.
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

// When the bytes of a copy arrive: CUDA allows any time between the issue and the wait. A wgmma
// executes at the opposite end, so that missing waits show: at its issue copies that it should have
// waited for are not there, at its wait its operands may be overwritten already.
enum class CopyArrival : std::uint8_t { at_wait, at_issue };
// The order of a float wgmma's sums: as in mma, or another that hardware might use.
enum class FloatSums : std::uint8_t { as_mma, otherwise };

// Orders that CUDA leaves open. Seed 0 is plain ascending order; any other permutes lanes within
// warps, warps and blocks.
struct Schedule {
  std::uint64_t seed = 0;
  CopyArrival copy_arrival = CopyArrival::at_wait;
  FloatSums float_sums = FloatSums::as_mma;
};
Schedule& schedule();  // of all launches; set it between launches only

struct Grid {
  const char* kernel = "";     // for reports
  const void* code = nullptr;  // the kernel's address
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic, poisoned at the start of each block
  // Static and dynamic together: 48 KB, or the larger limit that the kernel was allowed.
  std::size_t shared_limit = 48 << 10;
  unsigned cluster = 1;  // neighbouring blocks in x that run together
  bool early = false;    // may start before the previous launch has ended
  int device = 0;        // its workers run it: grids of two devices run at the same time
};

// One block of a grid with `early`, run up to wait_for_predecessor while the previous launch has
// not run at all. Reads before that point see old data, and writes come too early.
struct EarlyBlock;
struct EarlyBlockCloser {
  void operator()(EarlyBlock* block) const noexcept;
};
using EarlyBlockOwner = std::unique_ptr<EarlyBlock, EarlyBlockCloser>;
EarlyBlockOwner begin_early(const Grid& grid, const std::function<void()>& body);
// Whether it called let_successor_start before that: then the next launch may start too.
bool lets_successor_start(const EarlyBlock& block);

// Runs `body` once for each thread, the blocks spread over its device's pool (set_workers); returns
// when all have ended. Aborts with a report on stderr where a launch is impossible (0 or > 1,024
// threads, too much shared memory), where all threads of a block are blocked, where lanes of one
// warp are in different collectives, and where a thread of a grid with `early` ends without
// wait_for_predecessor. `begun` continues now, on the OS thread that began it.
void run_grid(const Grid& grid, const std::function<void()>& body, EarlyBlockOwner begun = nullptr);
void set_workers(int device, int threads);  // 0 = one for each usable core

// Number of launches by the kernel's address: each template instantiation counts separately.
std::map<const void*, std::uint64_t> launch_counts();

// The functions below are called by kernels.

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
unsigned thread_rank();  // x + y * X + z * X * Y

inline constexpr unsigned kWarpLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

// Kinds of warp collectives. Lanes that name each other in different kinds are a bug.
enum class Collective : std::uint8_t { sync, shuffle, vote, match, reduce, ldmatrix, mma, wgmma };

struct Slot {
  std::uint64_t words[8];
};

void sync_block();
// Waits until `threads` threads have arrived at this named barrier.
void sync_threads(unsigned barrier, unsigned threads);
void sync_cluster();
unsigned cluster_blocks();
unsigned cluster_rank();  // of this block in the cluster
void wait_for_predecessor();
void let_successor_start();
// Deposits `mine`, waits for the lanes of `mask` that have not ended, and returns the slots of all
// 32 lanes; those of lanes that did not take part are poison.
const Slot* collective(Collective kind, std::uint32_t mask, const Slot& mine);
// The lanes that took part in the last collective.
std::uint32_t collective_lanes();

// Lets other threads run until `holds(about, detail)`.
void wait_until(bool (*holds)(const void* about, unsigned detail), const void* about,
                unsigned detail);

// Lets other threads run, and if none of this device can, other devices.
void pause();
// The same, and the other lanes of this warp that could run rest too.
void rest_warp();

// A store to memory of another device: it becomes visible at fence_system by any thread of the
// block (at the latest when the block ends), or at once, as copies do.
void push(void* there, const void* value, unsigned bytes);
void fence_system();
long long clock();  // nanoseconds

void* dynamic_shared();
void* dynamic_shared_of(unsigned rank);  // of a block of the cluster
void require_running(unsigned rank);     // an ended block's shared memory is freed
std::size_t dynamic_shared_bytes();
// The block's variable of this call site; `key` is unique to it.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);
// Checks the launch against the thread count that the kernel was compiled for.
void require_bounds(unsigned threads);

// cp.async; a null src fills with zeros.
void copy_issue(void* shared, const void* global, unsigned bytes, unsigned filled);
void copy_commit();
void copy_wait(unsigned groups_left);

// The block's own asynchronous operations in flight (async.h).
class AsyncWork;
AsyncWork& async_work();
AsyncWork& async_work_of(unsigned rank);

// Ends the program with a line that names kernel, block and thread.
[[noreturn]] void stop(const char* what);

}  // namespace simt
