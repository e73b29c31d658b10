// Runs CUDA kernels on the CPU: a CUDA thread is a fibre, a block is one OS thread that switches
// between its fibres. Made to show what hardware would hide now and then: shared memory starts
// poisoned, orders that CUDA leaves open are permuted by a seed, and a block that cannot go on is a
// report and not a hang (docs/cuda.md). The vocabulary of kernels on top is sim/vocabulary.h.
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
// multiplies at the other end: at its issue what it should have waited for has not come, at its
// wait what should have waited for it came before.
enum class CopyLands : std::uint8_t { at_wait, at_issue };
// How a wgmma of floats adds up: as mma does, or as hardware might that rounds in another order.
enum class FloatSums : std::uint8_t { as_mma, otherwise };

// Orders that CUDA leaves open. Seed 0 is plain ascending order; any other permutes lanes within
// warps, warps and blocks.
struct Schedule {
  std::uint64_t seed = 0;
  CopyLands copy_lands = CopyLands::at_wait;
  FloatSums float_sums = FloatSums::as_mma;
};
Schedule& schedule();  // of all launches; set it between launches only

struct Grid {
  const char* kernel = "";     // for reports
  const void* code = nullptr;  // the kernel's address
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic, poisoned at the start of each block
  // Static and dynamic together: 48 KB, or what the kernel was allowed of the architecture's more.
  std::size_t shared_limit = 48 << 10;
  unsigned cluster = 1;  // neighbouring blocks in x that run together
  bool early = false;    // may begin before the launch in front of it has ended
  int device = 0;        // whose workers run it: grids of two run at the same time
};

// One block of a grid with `early` that has gone as far as it can while the launch in front has not
// run at all: up to wait_for_predecessor. What it reads before is old, what it writes is too early.
struct EarlyBlock;
struct EarlyBlockCloser {
  void operator()(EarlyBlock* block) const noexcept;
};
using EarlyBlockOwner = std::unique_ptr<EarlyBlock, EarlyBlockCloser>;
EarlyBlockOwner begin_early(const Grid& grid, const std::function<void()>& body);
// Whether it called let_successor_start on its way: then the launch after it may have begun too.
bool lets_successor_start(const EarlyBlock& block);

// Runs `body` once for each thread, the blocks spread over its device's pool (set_workers); returns
// when all have ended. Aborts with a report on stderr where a launch is impossible (0 or > 1,024
// threads, too much shared memory), where all threads of a block wait and none can go on, where
// lanes of one warp meet in different collectives, and where a thread of a grid with `early` ends
// without wait_for_predecessor. `begun` goes on now, on the OS thread that began it.
void run_grid(const Grid& grid, const std::function<void()>& body, EarlyBlockOwner begun = nullptr);
void set_workers(int device, int threads);  // 0 = one for each usable core

// Launches so far, by the kernel's address: of a template each instantiation counts for itself.
std::map<const void*, std::uint64_t> launch_counts();

// What follows is called by kernels.

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
unsigned thread_rank();  // x + y * X + z * X * Y

inline constexpr unsigned kWarpLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

// What lanes of a warp meet for. Lanes that name each other in different kinds are a bug.
enum class Meeting : std::uint8_t { sync, shuffle, vote, match, reduce, ldmatrix, mma, wgmma };

struct Slot {
  std::uint64_t words[8];
};

void sync_block();
// Until so many threads, all that name this barrier, are there.
void sync_threads(unsigned barrier, unsigned threads);
void sync_cluster();
unsigned cluster_blocks();
unsigned cluster_rank();  // of this block among them
void wait_for_predecessor();
void let_successor_start();
// Deposits `mine`, waits for the lanes of `mask` that have not ended, and gives what each of the 32
// lanes brought; lanes that did not come show poison.
const Slot* meet(Meeting kind, std::uint32_t mask, const Slot& mine);
// Lanes that came to the last meeting.
std::uint32_t met_lanes();

// Lets other threads run until `holds(about, detail)`.
void wait_until(bool (*holds)(const void* about, unsigned detail), const void* about,
                unsigned detail);

// Lets other threads run, and where none of this device can the other devices.
void nap();
// The same, and so do the lanes of this warp that could go on.
void rest_warp();

// A store to memory of another device: it lands there at fence_system by any thread of the block
// (at the latest when the block ends), or at once, as copies do.
void push(void* there, const void* value, unsigned bytes);
void fence_system();
long long clock();  // nanoseconds

void* dynamic_shared();
void* dynamic_shared_of(unsigned rank);  // of a block of the cluster
void require_running(unsigned rank);  // its shared memory is gone when all its threads have ended
std::size_t dynamic_shared_bytes();
// The block's variable of this call site; `key` is unique to it.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);
// The kernel was compiled for at most this many threads.
void require_bounds(unsigned threads);

// cp.async: src null fills zeros.
void copy_issue(void* shared, const void* global, unsigned bytes, unsigned filled);
void copy_commit();
void copy_wait(unsigned groups_left);

// What the block has under way of its own (async.h).
class AsyncWork;
AsyncWork& async_work();
AsyncWork& async_work_of(unsigned rank);

// Ends the program with a line that names kernel, block and thread.
[[noreturn]] void stop(const char* what);

}  // namespace simt
