// Barriers, the copy engine and the tensor cores of compute capability 9.0 on the emulator: their
// semantics, and kernels that are run with one planted bug and without it.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "../device_memory.h"
#include "cuda/intrinsics/run.h"
#include "cuda/intrinsics/wgmma.h"

namespace leq::LEQ_GPU {
namespace {

enum class Bug {
  none,
  no_barrier_wait,
  stage_not_released,
  released_too_early,
  wrong_parity,
  no_init,
  too_many_arrivals,
  no_wgmma_wait,
  no_wgmma_fence,
  ends_too_early,
  operand_overwritten,
  tile_misplaced,
  ends_before_its_neighbour,
  odd_grid,
};

using Bytes = std::vector<std::int8_t>;

Bytes random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> values(-127, 127);
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::int8_t>(values(random));
  return bytes;
}

rt::TensorMap map_of(const std::int8_t* base, int rows, int columns, int box_rows, int box_columns,
                     rt::Swizzle swizzle) {
  return rt::make_tensor_map({base, rows, columns, columns, box_rows, box_columns, swizzle});
}

// Returns shared memory from the first multiple of 1,024 on.
__device__ unsigned char* aligned(unsigned char* dynamic) {
  return dynamic + (1024 - ptx::shared_address(dynamic) % 1024) % 1024;
}

// --- copies ---

struct Load {
  rt::TensorMap map;
  int column, row, bytes;
};

// Copies one box to shared memory and then out again in that layout.
__global__ void load_box(std::int8_t* out, const LEQ_GRID_CONSTANT Load load, Bug bug) {
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  unsigned char* const tile = aligned(dynamic);
  auto& full = *reinterpret_cast<ptx::Barrier*>(tile + load.bytes);
  if (threadIdx.x == 0 && bug != Bug::no_init) ptx::barrier_init(full, 1);
  ptx::fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::barrier_expect(full, static_cast<unsigned>(load.bytes));
    if (bug == Bug::too_many_arrivals) ptx::barrier_arrive(full);
    ptx::tensor_load(tile, load.map, load.column, load.row, full);
  }
  if (bug != Bug::no_barrier_wait) ptx::barrier_wait(full, bug == Bug::wrong_parity ? 1 : 0);
  for (int i = static_cast<int>(threadIdx.x); i < load.bytes; i += 64) {
    out[i] = static_cast<std::int8_t>(tile[i]);
  }
  if (bug == Bug::wrong_parity) ptx::barrier_wait(full, 1);
}

Bytes run_load(const Bytes& matrix, int rows, int columns, rt::Swizzle swizzle, int box_rows,
               int box_columns, int column, int row, Bug bug = Bug::none) {
  const DeviceArray<std::int8_t> there(matrix);
  const int bytes = box_rows * box_columns;
  const DeviceArray<std::int8_t> out(static_cast<std::size_t>(bytes));
  const Load load = {map_of(there.data(), rows, columns, box_rows, box_columns, swizzle), column,
                     row, bytes};
  rt::run(test_stream(),
          {"load_box", dim3(1), dim3(64), static_cast<std::size_t>(bytes) + 1024 + 8}, load_box,
          out.data(), load, bug);
  return out.host();
}

class Landing : public testing::TestWithParam<simt::CopyLands> {
 protected:
  void SetUp() override { simt::schedule() = {3, GetParam()}; }
  void TearDown() override { simt::schedule() = {}; }
};
INSTANTIATE_TEST_SUITE_P(Ends, Landing,
                         testing::Values(simt::CopyLands::at_wait, simt::CopyLands::at_issue));

// Returns where 16-byte piece `piece` of row r is stored, by the tables of the programming guide.
int piece_place(int span, int r, int piece) {
  if (span == 128) return piece ^ r % 8;
  if (span == 64) return piece ^ r / 2 % 4;
  return span == 32 ? piece ^ r / 4 % 2 : piece;
}

TEST_P(Landing, ABoxLiesInTheOrderOfItsSwizzleAndIsZeroOutside) {
  const int rows = 21, columns = 160;
  const Bytes matrix = random_bytes(rows * columns, 1);
  for (const rt::Swizzle swizzle :
       {rt::Swizzle::none, rt::Swizzle::bytes_32, rt::Swizzle::bytes_64, rt::Swizzle::bytes_128}) {
    const int span = static_cast<int>(swizzle), width = span == 0 ? 48 : span;
    for (const auto& [column, row] : {std::pair{0, 0}, {112, 8}, {-16, -3}, {160, 0}, {0, 21}}) {
      const Bytes found = run_load(matrix, rows, columns, swizzle, 16, width, column, row);
      for (int r = 0; r < 16; ++r) {
        for (int c = 0; c < width; ++c) {
          const int y = row + r, x = column + c;
          const bool inside = y >= 0 && y < rows && x >= 0 && x < columns;
          const int expected = inside ? matrix[static_cast<std::size_t>(y * columns + x)] : 0;
          const int at = r * width + piece_place(span, r, c / 16) * 16 + c % 16;
          ASSERT_EQ(found[static_cast<std::size_t>(at)], expected) << span << " " << r << " " << c;
        }
      }
    }
  }
}

TEST(CopyEngine, ShowsAMissingWait) {
  const Bytes found = run_load(random_bytes(2048, 2), 16, 128, rt::Swizzle::none, 16, 16, 0, 0,
                               Bug::no_barrier_wait);
  EXPECT_EQ(found, Bytes(256, static_cast<std::int8_t>(0xcd)));
}

TEST(CopyEngineDeath, BarriersThatAreUsedWronglyAreReported) {
  const auto run = [](Bug bug) {
    run_load(random_bytes(2048, 2), 16, 128, rt::Swizzle::none, 16, 16, 0, 0, bug);
  };
  EXPECT_DEATH(run(Bug::wrong_parity), "deadlock.* 64 at an mbarrier");
  EXPECT_DEATH(run(Bug::no_init), "mbarrier: used before its init");
  EXPECT_DEATH(run(Bug::too_many_arrivals), "more threads arrive than it was made for");
}

// Arguments that the driver refuses, including a box that does not fill its swizzle.
TEST(TensorMaps, ArgumentsThatTheDriverRefusesAreRefused) {
  const DeviceArray<std::int8_t> there(4096);
  const rt::TiledBytes right = {there.data(), 16, 128, 128, 16, 64, rt::Swizzle::bytes_64};
  EXPECT_NO_THROW(rt::make_tensor_map(right));
  const auto refused = [&](auto change) {
    rt::TiledBytes wrong = right;
    change(wrong);
    EXPECT_THROW(rt::make_tensor_map(wrong), std::exception);
  };
  refused([&](rt::TiledBytes& m) { m.base = there.data() + 8; });
  refused([](rt::TiledBytes& m) { m.stride = 120; });
  refused([](rt::TiledBytes& m) { m.rows = 0; });
  refused([](rt::TiledBytes& m) { m.box_rows = 257; });
  refused([](rt::TiledBytes& m) { m.box_columns = 24; });
  refused([](rt::TiledBytes& m) { m.swizzle = rt::Swizzle::bytes_32; });
}

// --- a ring of one stage ---

constexpr int kRounds = 5;

// Warp 0 loads rows of 32 bytes one after another; warps 1 and 2 add them up.
__global__ void add_rows(int* out, const LEQ_GRID_CONSTANT rt::TensorMap map, Bug bug) {
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  unsigned char* const row = aligned(dynamic);
  auto* const barriers = reinterpret_cast<ptx::Barrier*>(row + 128);
  ptx::Barrier &full = barriers[0], &empty = barriers[1];
  if (threadIdx.x == 0) {
    ptx::barrier_init(full, 1);
    ptx::barrier_init(empty, 2);
    ptx::fence_async();
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  int sum = 0;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (threadIdx.x == 0) {
      if (bug != Bug::stage_not_released) {
        ptx::barrier_wait(empty, (bug == Bug::wrong_parity ? i : i + 1) % 2);
      }
      ptx::barrier_expect(full, 32);
      ptx::tensor_load(row, map, 0, static_cast<int>(i), full);
    }
    if (threadIdx.x < 32) continue;
    ptx::barrier_wait(full, i % 2);
    if (bug == Bug::released_too_early) __syncwarp();
    if (bug == Bug::released_too_early && lane == 0) ptx::barrier_arrive(empty);
    sum += static_cast<std::int8_t>(row[lane]) * static_cast<int>(i + 1);
    __syncwarp();
    if (bug != Bug::released_too_early && lane == 0) ptx::barrier_arrive(empty);
  }
  if (threadIdx.x >= 32) out[threadIdx.x - 32] = sum;
}

std::vector<int> run_add_rows(Bug bug) {
  const Bytes rows = random_bytes(kRounds * 32, 7);
  const DeviceArray<std::int8_t> there(rows);
  const DeviceArray<int> out(64);
  rt::run(test_stream(), {"add_rows", dim3(1), dim3(96), 2048}, add_rows, out.data(),
          map_of(there.data(), kRounds, 32, 1, 32, rt::Swizzle::none), bug);
  return out.host();
}

std::vector<int> sums_of_rows() {
  const Bytes rows = random_bytes(kRounds * 32, 7);
  std::vector<int> sums(64);
  for (std::size_t i = 0; i < 64; ++i) {
    for (std::size_t r = 0; r < kRounds; ++r)
      sums[i] += rows[r * 32 + i % 32] * static_cast<int>(r + 1);
  }
  return sums;
}

TEST_P(Landing, ARingOfStagesWorks) { EXPECT_EQ(run_add_rows(Bug::none), sums_of_rows()); }

// The bug: a lane releases the stage although the other lanes of its warp may not have read it.
TEST(CopyEngine, ShowsAStageThatIsReleasedTooEarly) {
  simt::schedule() = {3, simt::CopyLands::at_issue};
  EXPECT_NE(run_add_rows(Bug::released_too_early), sums_of_rows());
  simt::schedule() = {};
}

using LandingDeath = Landing;
INSTANTIATE_TEST_SUITE_P(Ends, LandingDeath,
                         testing::Values(simt::CopyLands::at_wait, simt::CopyLands::at_issue));

TEST_P(LandingDeath, AStageThatIsReusedTooEarlyIsReported) {
  EXPECT_DEATH(run_add_rows(Bug::stage_not_released), "deadlock|more threads arrive");
}

TEST_P(LandingDeath, AWrongParityIsADeadlock) {
  EXPECT_DEATH(run_add_rows(Bug::wrong_parity), "deadlock.* 65 at an mbarrier");
}

// --- clusters ---

// Each block loads half of a row of 64 bytes for both blocks and adds up the whole row; this is
// repeated kRounds times. A stage is free when both blocks have read it.
__global__ void share_rows(int* out, const LEQ_GRID_CONSTANT rt::TensorMap map, Bug bug) {
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  unsigned char* const row = aligned(dynamic);
  auto* const barriers = reinterpret_cast<ptx::Barrier*>(row + 256);
  ptx::Barrier &full = barriers[0], &empty = barriers[1];
  const unsigned rank = ptx::cluster_rank();
  if (threadIdx.x == 0) {
    ptx::barrier_init(full, 1);
    ptx::barrier_init(empty, 2);
    ptx::fence_init();
  }
  ptx::sync_cluster();
  int sum = 0;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (threadIdx.x == 0) {
      ptx::barrier_wait(empty, (i + 1) % 2);
      ptx::barrier_expect(full, 256);
      ptx::tensor_load_to(3, row + rank * 128, map, static_cast<int>(rank) * 128,
                          static_cast<int>(i), full);
    }
    ptx::barrier_wait(full, i % 2);
    for (unsigned k = threadIdx.x; k < 256; k += 32) sum += static_cast<std::int8_t>(row[k]);
    __syncwarp();
    if (threadIdx.x < 2) ptx::barrier_arrive_at(empty, threadIdx.x);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
  if (bug != Bug::ends_before_its_neighbour) ptx::sync_cluster();
}

std::vector<int> run_share_rows(Bug bug = Bug::none) {
  const DeviceArray<std::int8_t> there(random_bytes(kRounds * 256, 7));
  const DeviceArray<int> out(4);
  rt::Launch launch = {
      "share_rows", dim3(bug == Bug::odd_grid ? 3 : 4), dim3(32), 2048, rt::Start::in_order, 2};
  rt::run(test_stream(), launch, share_rows, out.data(),
          map_of(there.data(), kRounds, 256, 1, 128, rt::Swizzle::none), bug);
  return out.host();
}

TEST_P(Landing, ABlockLoadsForItsNeighbour) {
  const Bytes rows = random_bytes(kRounds * 256, 7);
  const int sum = std::accumulate(rows.begin(), rows.end(), 0);
  EXPECT_EQ(run_share_rows(), std::vector<int>(4, sum));
}

TEST(ClusterDeath, WrongUseIsReported) {
  EXPECT_DEATH(run_share_rows(Bug::ends_before_its_neighbour), "of a block that has ended");
  EXPECT_DEATH(run_share_rows(Bug::odd_grid), "blocks in x are a multiple of it");
}

// --- the tensor cores ---

constexpr int kColumns = 128;  // columns of both operands

// Computes out[64][columns] = A B^T in one warpgroup, over 128 columns of bytes at once.
template <int columns, bool through_registers>
__global__ void multiply(int* out, const std::int8_t* a, const std::int8_t* b, Bug bug) {
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  unsigned char* const tiles = aligned(dynamic) + (bug == Bug::tile_misplaced ? 128 : 0);
  unsigned char* const b_tile = tiles + 64 * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < (64 + columns) * 8; i += 128) {
    const int r = i / 8, piece = i % 8;
    const std::int8_t* const from = r < 64 ? a + r * kColumns : b + (r - 64) * kColumns;
    std::memcpy(tiles + r * kColumns + (piece ^ r % 8) * 16, from + piece * 16, 16);
  }
  ptx::fence_async();
  __syncthreads();
  int sums[columns / 2];
  for (int& sum : sums) sum = 1000;  // not read
  std::uint32_t rows[4][4];
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  for (int step = 0; step < 4; ++step) {
    for (int r = 0; r < 4; ++r) {
      const std::int8_t* const from = a + (row + r % 2 * 8) * kColumns + step * 32 + r / 2 * 16;
      std::memcpy(&rows[step][r], from + lane % 4 * 4, 4);
    }
  }
  if (bug != Bug::no_wgmma_fence) ptx::wgmma_fence();
  for (int step = 0; step < 4; ++step) {
    const std::uint64_t b_operand = ptx::next_columns(ptx::matrix_operand(b_tile), step);
    if constexpr (through_registers) {
      ptx::wgmma(sums, rows[step], b_operand, step > 0);
    } else {
      ptx::wgmma(sums, ptx::next_columns(ptx::matrix_operand(tiles), step), b_operand, step > 0);
    }
    ptx::wgmma_commit();
  }
  if (bug == Bug::ends_too_early) return;
  if (bug == Bug::operand_overwritten) rows[3][0] ^= 0x01010101u;
  if (bug == Bug::no_wgmma_wait) {
    ptx::wgmma_wait<1>();
  } else {
    ptx::wgmma_wait<0>();
  }
  for (int i = 0; i < columns / 2; ++i) {
    out[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
  ptx::wgmma_wait<0>();
}

template <int columns, bool through_registers>
std::vector<int> run_multiply(Bug bug = Bug::none) {
  const DeviceArray<std::int8_t> a(random_bytes(64 * kColumns, 3)),
      b(random_bytes(std::size_t{columns} * kColumns, 4));
  const DeviceArray<int> out(64 * columns);
  rt::run(test_stream(),
          {"multiply", dim3(1), dim3(128), std::size_t{(64 + columns) * kColumns + 1152}},
          multiply<columns, through_registers>, out.data(),
          static_cast<const std::int8_t*>(a.data()), static_cast<const std::int8_t*>(b.data()),
          bug);
  return out.host();
}

std::vector<int> product(int columns) {
  const Bytes a = random_bytes(64 * kColumns, 3),
              b = random_bytes(static_cast<std::size_t>(columns) * kColumns, 4);
  std::vector<int> sums;
  for (std::size_t row = 0; row < 64; ++row) {
    for (std::size_t column = 0; column < static_cast<std::size_t>(columns); ++column) {
      sums.push_back(std::inner_product(a.begin() + static_cast<int>(row * kColumns),
                                        a.begin() + static_cast<int>((row + 1) * kColumns),
                                        b.begin() + static_cast<int>(column * kColumns), 0));
    }
  }
  return sums;
}

TEST_P(Landing, WgmmaMultiplies) {
  EXPECT_EQ((run_multiply<256, false>()), product(256));
  EXPECT_EQ((run_multiply<128, false>()), product(128));
  EXPECT_EQ((run_multiply<128, true>()), product(128));
}

TEST_P(Landing, SumsThatAreNotWaitedForArePoison) {
  const auto found = run_multiply<128, false>(Bug::no_wgmma_wait);
  EXPECT_EQ(found, std::vector<int>(64 * 128, static_cast<int>(0xcdcdcdcd)));
}

// Loads tiles of 128 rows of 128 bytes one after another to one stage; a warpgroup adds up the
// bytes of each row in all tiles (its A is all ones). The result is out[thread][64].
__global__ void add_tiles(int* out, const LEQ_GRID_CONSTANT rt::TensorMap map, Bug bug) {
  LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
  unsigned char* const tile = aligned(dynamic);
  auto* const barriers = reinterpret_cast<ptx::Barrier*>(tile + 128 * kColumns);
  ptx::Barrier &full = barriers[0], &empty = barriers[1];
  if (threadIdx.x == 0) {
    ptx::barrier_init(full, 1);
    ptx::barrier_init(empty, 4);
    ptx::fence_init();
  }
  __syncthreads();
  const std::uint32_t ones[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
  int sums[64];
  for (unsigned i = 0; i < kRounds; ++i) {
    if (threadIdx.x == 128) {
      ptx::barrier_wait(empty, (i + 1) % 2);
      ptx::barrier_expect(full, 128 * kColumns);
      ptx::tensor_load(tile, map, 0, static_cast<int>(i) * 128, full);
    }
    if (threadIdx.x >= 128) continue;
    ptx::barrier_wait(full, i % 2);
    ptx::wgmma_fence();
    for (int step = 0; step < 4; ++step) {
      ptx::wgmma(sums, ones, ptx::next_columns(ptx::matrix_operand(tile), step), i + step > 0);
    }
    ptx::wgmma_commit();
    if (bug != Bug::released_too_early) ptx::wgmma_wait<0>();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(empty);
    ptx::wgmma_wait<0>();
  }
  if (threadIdx.x >= 128) return;
  for (unsigned i = 0; i < 64; ++i) out[threadIdx.x * 64 + i] = sums[i];
}

std::vector<int> run_add_tiles(Bug bug) {
  const DeviceArray<std::int8_t> there(random_bytes(kRounds * 128 * kColumns, 9));
  const DeviceArray<int> out(128 * 64);
  rt::run(test_stream(), {"add_tiles", dim3(1), dim3(160), 128 * kColumns + 1024 + 16}, add_tiles,
          out.data(),
          map_of(there.data(), kRounds * 128, kColumns, 128, kColumns, rt::Swizzle::bytes_128),
          bug);
  return out.host();
}

std::vector<int> sums_of_tiles() {
  const Bytes bytes = random_bytes(kRounds * 128 * kColumns, 9);
  std::vector<int> sums(128 * 64);
  for (std::size_t at = 0; at < sums.size(); ++at) {
    const std::size_t i = at % 64, row = i / 4 * 8 + at / 64 % 4 * 2 + i % 2;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const auto first = bytes.begin() + static_cast<int>((round * 128 + row) * kColumns);
      sums[at] = std::accumulate(first, first + kColumns, sums[at]);
    }
  }
  return sums;
}

TEST_P(Landing, TilesAreMultipliedAsTheyCome) {
  EXPECT_EQ(run_add_tiles(Bug::none), sums_of_tiles());
}

// Both bugs become visible if products are computed as late as the rules allow.
class LateProducts : public testing::Test {
 protected:
  LateProducts() { simt::schedule() = {3, simt::CopyLands::at_issue}; }
  ~LateProducts() override { simt::schedule() = {}; }
};

TEST_F(LateProducts, ShowAStageThatIsReleasedBeforeTheWait) {
  EXPECT_NE(run_add_tiles(Bug::released_too_early), sums_of_tiles());
}

TEST_F(LateProducts, ShowRegistersThatAreOverwrittenTooEarly) {
  EXPECT_NE((run_multiply<128, true>(Bug::operand_overwritten)), product(128));
}

TEST(WgmmaDeath, WrongUseIsReported) {
  const auto run = [](Bug bug) { run_multiply<128, false>(bug); };
  EXPECT_DEATH(run(Bug::no_wgmma_fence), "no wgmma.fence");
  EXPECT_DEATH(run(Bug::ends_too_early), "has not waited for its wgmma");
  EXPECT_DEATH(run(Bug::tile_misplaced), "begin at a multiple of 1,024");
}

}  // namespace
}  // namespace leq::LEQ_GPU
