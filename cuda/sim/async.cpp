#include "cuda/sim/async.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "cuda/sim/emulator.h"
#include "cuda/sim/fibre.h"

namespace simt {
namespace {

constexpr std::uint32_t kDynamicAddress = 1024 + 128;
constexpr unsigned char kPoison = 0xcd;

// Returns the host address for a shared-memory address in block `rank` of the cluster.
unsigned char* host_of(std::uint32_t address, unsigned rank) {
  if (address < kDynamicAddress || address - kDynamicAddress >= dynamic_shared_bytes()) {
    stop("an address outside of dynamic shared memory");
  }
  return static_cast<unsigned char*>(dynamic_shared_of(rank)) + (address - kDynamicAddress);
}

// XOR-swizzles the 16-byte pieces of an address in lines of 128 bytes, for rows of `span` bytes.
std::uint32_t swizzled_address(std::uint32_t address, int span) {
  if (span == 0) return address;
  const auto pieces = static_cast<std::uint32_t>(span / 16);
  return address ^ (address >> 7 & (pieces - 1)) << 4;
}

// The state of an mbarrier in its 64 bits. The top two bits distinguish it from poison.
struct BarrierState {
  unsigned parity, pending, count;
  int bytes;  // announced bytes that have not arrived
};
constexpr std::uint64_t kMade = 1;
constexpr unsigned kMaxCount = (1u << 20) - 1;
constexpr int kMaxBytes = (1 << 20) - 1;

SIMT_UNSEEN BarrierState read_state(const std::uint64_t* barrier) {
  std::uint64_t word;
  std::memcpy(&word, barrier, sizeof word);
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0) stop("mbarrier: unaligned");
  if (word >> 62 != kMade) stop("mbarrier: used before its init");
  return {static_cast<unsigned>(word >> 61 & 1), static_cast<unsigned>(word >> 41 & kMaxCount),
          static_cast<unsigned>(word >> 21 & kMaxCount),
          static_cast<int>(word & 0x1fffff) - kMaxBytes};
}
SIMT_UNSEEN void write_state(std::uint64_t* barrier, const BarrierState& state) {
  const std::uint64_t word = kMade << 62 | std::uint64_t{state.parity} << 61 |
                             std::uint64_t{state.pending} << 41 | std::uint64_t{state.count} << 21 |
                             static_cast<std::uint64_t>(state.bytes + kMaxBytes);
  std::memcpy(barrier, &word, sizeof word);
}

// Returns the ThreadSanitizer key of a phase: one byte of the barrier's address per parity.
const void* key_of(const std::uint64_t* barrier, unsigned parity) {
  return reinterpret_cast<const char*>(barrier) + parity;
}

SIMT_UNSEEN void change(std::uint64_t* barrier, unsigned arrivals, int bytes) {
  BarrierState state = read_state(barrier);
  release_key(key_of(barrier, state.parity));
  if (arrivals > state.pending) stop("mbarrier: more threads arrive than it was made for");
  state.pending -= arrivals;
  state.bytes += bytes;
  if (std::abs(state.bytes) > kMaxBytes) stop("mbarrier: over 2^20 - 1 bytes");
  if (state.pending == 0 && state.bytes == 0) {
    state.pending = state.count;
    state.parity ^= 1;
  }
  write_state(barrier, state);
}

SIMT_UNSEEN bool has_ended(const void* barrier, unsigned parity) {
  return read_state(static_cast<const std::uint64_t*>(barrier)).parity != parity;
}

// 32 bytes of a row of an operand.
using OperandRow = std::int8_t[32];

// Reads row `row` of the operand that the descriptor points to.
void read_row(std::uint64_t descriptor, unsigned row, OperandRow& bytes) {
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3fff) << 4;
  const auto of_eight_rows = static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    const std::uint32_t at = start + row / 8 * of_eight_rows + row % 8 * 128 + piece * 16;
    std::memcpy(bytes + piece * 16, host_of(swizzled_address(at, 128), cluster_rank()), 16);
  }
}

void require_operand(std::uint64_t descriptor) {
  if (descriptor >> 62 != 1) stop("wgmma: an operand that is not in 128-byte order");
  if ((descriptor >> 49 & 7) != 0 || (descriptor << 4 & 0x380) != 0) {
    stop("wgmma: an operand whose tile does not begin at a multiple of 1,024 bytes");
  }
}

bool is_zero(const OperandRow& row) {
  return std::all_of(std::begin(row), std::end(row), [](std::int8_t byte) { return byte == 0; });
}

unsigned lane() { return thread_rank() % kWarpLanes; }

// Adds the products of two rows of A with all rows of operand `b` to this thread's sums.
void add_products(std::vector<int>& sums, const OperandRow (&rows)[2], std::uint64_t b) {
  for (unsigned i = 0; i < sums.size(); i += 4) {
    for (unsigned side = 0; side < 2; ++side) {
      OperandRow column;
      read_row(b, i / 4 * 8 + lane() % 4 * 2 + side, column);
      for (unsigned half = 0; half < 2; ++half) {
        int& sum = sums[i + 2 * half + side];
        sum = std::inner_product(std::begin(rows[half]), std::end(rows[half]), column, sum);
      }
    }
  }
}

// The two rows of A that this thread's sums need, collected from the registers of its quad.
void rows_of_registers(const std::uint32_t* mine, OperandRow (&rows)[2]) {
  Slot slot = {};
  std::memcpy(&slot, mine, 16);
  const Slot* all = collective(Collective::wgmma, kAllLanes, slot);
  for (unsigned t = 0; t < 4; ++t) {
    std::int8_t bytes[4][4];
    std::memcpy(bytes, &all[lane() / 4 * 4 + t], sizeof bytes);
    for (unsigned r = 0; r < 4; ++r) std::memcpy(rows[r % 2] + r / 2 * 16 + t * 4, bytes[r], 4);
  }
}

bool can_end(const void* barrier, unsigned parity) {
  const std::vector<AsyncWork::Load>& loads = async_work().loads;
  return has_ended(barrier, parity) ||
         std::any_of(loads.begin(), loads.end(),
                     [barrier](const AsyncWork::Load& load) { return load.barrier == barrier; });
}

void complete(const AsyncWork::Load& load) {
  acquire_key(key_of(load.barrier, read_state(load.barrier).parity));
  const auto& from = load.matrix;
  const auto* const base = static_cast<const unsigned char*>(from.base);
  for (int r = 0; r < from.box_rows; ++r) {
    const std::int64_t row = load.row + r;
    for (int c = 0; c < from.box_columns; c += 16) {
      unsigned char piece[16] = {};
      const std::int64_t column = load.column + c;
      if (row >= 0 && row < from.rows && column >= 0 && column < from.columns) {
        const std::int64_t bytes = std::min<std::int64_t>(16, from.columns - column);
        std::memcpy(piece, base + row * from.stride + column, static_cast<std::size_t>(bytes));
      }
      const auto at = load.address + static_cast<std::uint32_t>(r * from.box_columns + c);
      std::memcpy(host_of(swizzled_address(at, static_cast<int>(from.swizzle)), load.rank), piece,
                  16);
    }
  }
  change(load.barrier, 0, -from.box_rows * from.box_columns);
}

// Row 16 w + g of A is used for the sums with i / 2 % 2 = 0, row 16 w + g + 8 for the others.
void multiply(AsyncWork::ThreadProducts& mine, AsyncWork::Product& product) {
  if (product.done) return;
  product.done = true;
  const MatrixProduct& what = product.what;
  OperandRow rows[2];
  if (what.a_registers != nullptr) {
    rows_of_registers(what.a_registers, rows);
  } else {
    const unsigned first = thread_rank() / kWarpLanes % 4 * 16 + lane() / 4;
    for (unsigned half = 0; half < 2; ++half) read_row(what.a, first + half * 8, rows[half]);
  }
  const auto held = std::find_if(mine.held.begin(), mine.held.end(),
                                 [&](const auto& other) { return other.sums == what.sums; });
  std::vector<int>& sums = held->values;
  if (!what.add) std::fill(sums.begin(), sums.end(), 0);
  if (!is_zero(rows[0]) || !is_zero(rows[1])) add_products(sums, rows, what.b);
}

}  // namespace

std::uint32_t shared_address(const void* shared) {
  const auto* const first = static_cast<const unsigned char*>(dynamic_shared());
  const auto* const at = static_cast<const unsigned char*>(shared);
  if (at < first || at >= first + dynamic_shared_bytes()) {
    stop("an address is asked for that is not in dynamic shared memory");
  }
  return kDynamicAddress + static_cast<std::uint32_t>(at - first);
}

SIMT_UNSEEN void barrier_init(std::uint64_t* barrier, unsigned count) {
  if (count == 0 || count > kMaxCount) stop("mbarrier: a count of 1 to 2^20 - 1");
  write_state(barrier, {0, count, count, 0});
}

SIMT_UNSEEN void barrier_arrive(std::uint64_t* barrier, unsigned bytes) {
  change(barrier, 1, static_cast<int>(bytes));
  // Lets other warps run first, which may happen on hardware before this warp's next step. An
  // arrival that announces bytes releases no thread.
  if (bytes == 0 && schedule().copy_arrival == CopyArrival::at_issue) rest_warp();
}

// Loads arrive when a thread waits for them, or at once if a thread already waits.
void barrier_wait(std::uint64_t* barrier, unsigned parity) {
  std::vector<AsyncWork::Load>& loads = async_work().loads;
  const auto arrives_at = [barrier](const AsyncWork::Load& load) {
    return load.barrier == barrier;
  };
  for (;;) {
    for (auto next = loads.begin();
         (next = std::find_if(loads.begin(), loads.end(), arrives_at)) != loads.end();) {
      const AsyncWork::Load load = *next;
      loads.erase(next);
      complete(load);
    }
    if (has_ended(barrier, parity)) break;
    wait_until(can_end, barrier, parity);
  }
  acquire_key(key_of(barrier, parity));
}

std::uint64_t* barrier_of(std::uint64_t* barrier, unsigned rank) {
  require_running(rank);
  return reinterpret_cast<std::uint64_t*>(host_of(shared_address(barrier), rank));
}

void tensor_load(void* shared, const void* map, int column, int row, std::uint64_t* barrier,
                 unsigned ranks) {
  AsyncWork::Load load = {};
  std::memcpy(&load.matrix, map, sizeof load.matrix);
  load.address = shared_address(shared);
  load.column = column;
  load.row = row;
  if (load.address % 128 != 0) stop("tensor load: to no multiple of 128 bytes");
  if (ranks == 0 || ranks >> cluster_blocks() != 0) stop("tensor load: to no block of the cluster");
  for (load.rank = 0; load.rank < cluster_blocks(); ++load.rank) {
    if ((ranks >> load.rank & 1) == 0) continue;
    load.barrier = barrier_of(barrier, load.rank);
    release_key(key_of(load.barrier, read_state(load.barrier).parity));
    if (schedule().copy_arrival == CopyArrival::at_issue) {
      complete(load);
    } else {
      async_work_of(load.rank).loads.push_back(load);
    }
  }
}

void matrix_fence() { async_work().threads[thread_rank()].fenced = true; }

void matrix_multiply(const MatrixProduct& product) {
  AsyncWork::ThreadProducts& mine = async_work().threads[thread_rank()];
  if (product.a_registers == nullptr) require_operand(product.a);
  require_operand(product.b);
  if (!mine.fenced) stop("wgmma: no wgmma.fence since the registers may have been touched");
  const Slot* all = collective(Collective::wgmma, kAllLanes, {{product.a, product.b}});
  if (all[0].words[0] != product.a || all[0].words[1] != product.b) {
    stop("wgmma: lanes of one warp with different operands");
  }
  const auto held = [&](const auto& other) { return other.sums == product.sums; };
  if (std::none_of(mine.held.begin(), mine.held.end(), held)) {
    AsyncWork::HeldSums held_now = {product.sums, {}};
    held_now.values.resize(static_cast<std::size_t>(product.count));
    std::memcpy(held_now.values.data(), product.sums, held_now.values.size() * 4);
    std::memset(product.sums, kPoison, held_now.values.size() * 4);
    mine.held.push_back(std::move(held_now));
  }
  mine.products.push_back({product, false});
  if (schedule().copy_arrival == CopyArrival::at_wait) {
    multiply(mine, mine.products.back());
  }
}

void matrix_commit() {
  AsyncWork::ThreadProducts& mine = async_work().threads[thread_rank()];
  mine.commits.push_back(mine.products.size());
}

void matrix_wait(unsigned groups_left) {
  AsyncWork::ThreadProducts& mine = async_work().threads[thread_rank()];
  mine.fenced = false;
  if (mine.commits.size() <= groups_left) return;
  const std::size_t groups = mine.commits.size() - groups_left;
  const std::size_t ended = mine.commits[groups - 1];
  for (std::size_t i = 0; i < ended; ++i) multiply(mine, mine.products[i]);
  mine.products.erase(mine.products.begin(),
                      mine.products.begin() + static_cast<std::ptrdiff_t>(ended));
  mine.commits.erase(mine.commits.begin(),
                     mine.commits.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::size_t& end : mine.commits) end -= ended;
  std::erase_if(mine.held, [&](const AsyncWork::HeldSums& held) {
    for (const auto& product : mine.products) {
      if (product.what.sums == held.sums) return false;
    }
    std::memcpy(held.sums, held.values.data(), held.values.size() * 4);
    return true;
  });
}

void AsyncWork::start_block(std::size_t of_threads) {
  loads.clear();
  threads.assign(of_threads, {});
}

void AsyncWork::end_thread(unsigned rank) const {
  if (!threads[rank].products.empty()) stop("a thread ends that has not waited for its wgmma");
}

}  // namespace simt
