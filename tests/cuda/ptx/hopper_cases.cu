// The kernels of ptx_conformance for hopper.h and wgmma.h, which need compute capability 9.0.
#include "cuda/intrinsics/wgmma.h"
#include "tests/cuda/ptx/run_case.cuh"

namespace leq::LEQ_GPU {
namespace {

// The input as a matrix of bytes; boxes may exceed it, as it lacks the last rows and columns.
constexpr int kMatrixStride = 128, kMatrixColumns = 112, kMatrixRows = 2040;
constexpr int kBoxRows = 16;
struct Maps {
  rt::TensorMap of[4];  // none (48 columns), 32, 64, 128 bytes
};
constexpr int box_columns(int map) { return map == 0 ? 48 : 16 << map; }

Maps maps_of(const Word* in) {
  constexpr rt::Swizzle kSwizzles[] = {rt::Swizzle::none, rt::Swizzle::bytes_32,
                                       rt::Swizzle::bytes_64, rt::Swizzle::bytes_128};
  Maps maps;
  for (int i = 0; i < 4; ++i) {
    maps.of[i] = rt::make_tensor_map(
        {in, kMatrixRows, kMatrixColumns, kMatrixStride, kBoxRows, box_columns(i), kSwizzles[i]});
  }
  return maps;
}

// Returns shared memory from the first multiple of 1,024 on.
__device__ unsigned char* aligned(unsigned char* dynamic) {
  return dynamic + (1024 - ptx::shared_address(dynamic) % 1024) % 1024;
}

using HopperKernel = void (*)(const Word* in, Word* out, const Maps maps);

template <HopperKernel kernel, unsigned threads, unsigned blocks, int bytes, unsigned cluster = 1>
std::vector<Word> run_hopper(unsigned seed) {
  const CaseMemory memory(seed);
  rt::run(
      case_stream(),
      {"ptx_conformance", dim3(blocks), dim3(threads), bytes + 1024, rt::Start::in_order, cluster},
      kernel, memory.in(), memory.out(), maps_of(memory.in()));
  return memory.result();
}

// A ring buffer of one stage: 32 threads write it, and the other 96 threads add up its contents.
constexpr int kRounds = 5;
__global__ void __launch_bounds__(kThreads)
    barriers(const Word* in, Word* out, const LEQ_GRID_CONSTANT Maps) {
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    auto* const stage = reinterpret_cast<Word*>(aligned(dynamic));
    auto* const barriers = reinterpret_cast<ptx::Barrier*>(stage + 32);
    ptx::Barrier &full = barriers[0], &empty = barriers[1];
    if (threadIdx.x == 0) {
      ptx::barrier_init(full, 32);
      ptx::barrier_init(empty, 96);
      ptx::fence_init();
    }
    __syncthreads();
    const bool writes = threadIdx.x < 32;
    Word sum = 0;
    for (unsigned i = 0; i < kRounds; ++i) {
      ptx::barrier_wait(writes ? empty : full, (writes ? i + 1 : i) % 2);
      if (writes) {
        stage[threadIdx.x] = in[thread() * kIn + i];
        ptx::barrier_arrive(full);
      } else {
        sum += stage[(threadIdx.x + i) % 32] * (i + 1);
        ptx::barrier_arrive(empty);
      }
    }
    out[thread() * kOut] = sum;
    const Word* const mine = stage + threadIdx.x % 32;
    out[thread() * kOut + 1] = ptx::shared_address(mine) - ptx::shared_address(stage);
  } else {
    ptx::wrong_architecture();
  }
}

// Copies a box in each swizzle order, from a position given by the input; writes its memory image.
__global__ void __launch_bounds__(kThreads)
    tensor_loads(const Word* in, Word* out, const LEQ_GRID_CONSTANT Maps maps) {
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    unsigned char* const box = aligned(dynamic);
    auto& full = *reinterpret_cast<ptx::Barrier*>(box + 2048);
    const auto map = static_cast<int>(blockIdx.x % 4);
    const int bytes = kBoxRows * box_columns(map);
    if (threadIdx.x == 0) {
      ptx::barrier_init(full, 1);
      ptx::fence_init();
      const Word place = in[thread() * kIn];
      const int column = static_cast<int>(place % 13) * 16 - 48;
      const int row = static_cast<int>(place / 16 % (kMatrixRows + 20)) - 10;
      ptx::barrier_expect(full, static_cast<unsigned>(bytes));
      ptx::tensor_load(box, maps.of[map], column, row, full);
    }
    __syncthreads();
    ptx::barrier_wait(full, 0);
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 4; i += kThreads) {
      out[blockIdx.x * kThreads * kOut + static_cast<unsigned>(i)] =
          reinterpret_cast<const Word*>(box)[i];
    }
  } else {
    ptx::wrong_architecture();
  }
}

// Each of two blocks loads half of the data that both read; a stage is free when both have read it.
__global__ void __launch_bounds__(kThreads)
    clusters(const Word* in, Word* out, const LEQ_GRID_CONSTANT Maps maps) {
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    unsigned char* const boxes = aligned(dynamic);
    auto* const barriers = reinterpret_cast<ptx::Barrier*>(boxes + 2 * 1024);
    ptx::Barrier &full = barriers[0], &empty = barriers[1];
    const unsigned rank = ptx::cluster_rank();
    if (threadIdx.x == 0) {
      ptx::barrier_init(full, 1);
      ptx::barrier_init(empty, 2 * kThreads / 32);
      ptx::fence_init();
    }
    ptx::sync_cluster();
    Word sum = rank;
    for (unsigned i = 0; i < kRounds; ++i) {
      if (threadIdx.x == 0) {
        ptx::barrier_wait(empty, (i + 1) % 2);
        ptx::barrier_expect(full, 2 * 1024);
        const auto row = static_cast<int>(in[(blockIdx.x * kThreads + i) * kIn] % kMatrixRows);
        ptx::tensor_load_to(3, boxes + rank * 1024, maps.of[2], 0, row, full);
      }
      ptx::barrier_wait(full, i % 2);
      for (unsigned k = 0; k < 4; ++k) {
        sum = sum * 31 + reinterpret_cast<const Word*>(boxes)[threadIdx.x + k * kThreads];
      }
      __syncwarp();
      if (threadIdx.x % 32 < 2) ptx::barrier_arrive_at(empty, threadIdx.x % 32);
    }
    out[thread() * kOut] = sum;
    // Other blocks of the cluster may access this block's memory until here.
    ptx::sync_cluster();
  } else {
    ptx::wrong_architecture();
  }
}

// The first warpgroup releases registers, the others acquire them and keep many values throughout.
constexpr unsigned kMoveThreads = 384;
__global__ void __launch_bounds__(kMoveThreads, 1)
    moved_registers(const Word* in, Word* out, const LEQ_GRID_CONSTANT Maps) {
  if constexpr (ptx::kHopper) {
    const unsigned at = (blockIdx.x * kMoveThreads + threadIdx.x) * kIn;
    if (threadIdx.x < 128) {
      ptx::keep_registers<56>();
      out[at] = in[at] ^ in[at + 1];
    } else {
      ptx::take_registers<224>();
      Word numbers[160];
#pragma unroll
      for (unsigned i = 0; i < 160; ++i) numbers[i] = in[(at + i * 5) % CaseMemory::kInWords];
      Word sum = 0;
#pragma unroll
      for (unsigned i = 160; i-- > 0;) sum = (sum ^ numbers[i]) * 0x9e3779b1u;
      out[at] = sum;
    }
  } else {
    ptx::wrong_architecture();
  }
}

// D[64][columns] = A B^T for 128 columns of bytes, to which 32 of these columns are added again.
template <int columns, bool through_registers>
__global__ void __launch_bounds__(kThreads)
    products(const Word* in, Word* out, const LEQ_GRID_CONSTANT Maps) {
  if constexpr (ptx::kHopper) {
    LEQ_DYNAMIC_SHARED(unsigned char, dynamic);
    unsigned char* const a_tile = aligned(dynamic);
    unsigned char* const b_tile = a_tile + 64 * 128;
    const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    in += blockIdx.x * kThreads * kIn;  // [64 + columns][32] words
    for (unsigned i = threadIdx.x; i < (64 + columns) * 32; i += kThreads) {
      const unsigned r = i / 32, piece = i % 32 / 4;
      *reinterpret_cast<Word*>(a_tile + r * 128 + (piece ^ r % 8) * 16 + i % 4 * 4) = in[i];
    }
    ptx::fence_async();
    __syncthreads();
    const std::uint64_t a = ptx::matrix_operand(a_tile), b = ptx::matrix_operand(b_tile);
    Word a_words[4][4];
#pragma unroll
    for (unsigned step = 0; step < 4; ++step) {
#pragma unroll
      for (unsigned r = 0; r < 4; ++r) {
        a_words[step][r] = in[(row + r % 2 * 8) * 32 + step * 8 + r / 2 * 4 + lane % 4];
      }
    }
    int sums[columns / 2];
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) sums[i] = 1000 + i;  // not read
    ptx::wgmma_fence();
    const auto multiply = [&](int step, bool add) {
      if constexpr (through_registers) {
        ptx::wgmma(sums, a_words[step], ptx::next_columns(b, step), add);
      } else {
        ptx::wgmma(sums, ptx::next_columns(a, step), ptx::next_columns(b, step), add);
      }
    };
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply(step, step > 0);
    ptx::wgmma_commit();
    multiply(2, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_finish(sums);
    Word mixed[kOut] = {};
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) {
      mixed[i % 8] = mixed[i % 8] * 0x9e3779b1u + static_cast<Word>(sums[i]);
    }
    for (unsigned i = 0; i < kOut; ++i) out[thread() * kOut + i] = mixed[i];
  } else {
    ptx::wrong_architecture();
  }
}

}  // namespace

std::vector<PtxCase> hopper_cases() {
  constexpr unsigned kFew = 8;  // for cases with much work per block
  constexpr int kWide = (64 + 256) * 128, kNarrow = (64 + 128) * 128;
  return {
      {"barrier_init, arrive, wait, shared_address, fence_init", 2,
       run_hopper<barriers, kThreads, kBlocks, 256>, true},
      {"barrier_expect, tensor_load", 8, run_hopper<tensor_loads, kThreads, kBlocks, 2048 + 8>,
       true},
      {"tensor_load_to, barrier_arrive_at, cluster_rank, sync_cluster", 2,
       run_hopper<clusters, kThreads, kBlocks, 2048 + 16, 2>, true},
      {"keep_registers, take_registers", 2,
       run_hopper<moved_registers, kMoveThreads, kBlocks / 4, 0>, true},
      {"wgmma 64 x 256, fence, commit, wait, finish, matrix_operand, next_columns, fence_async", 2,
       run_hopper<products<256, false>, kThreads, kFew, kWide>, true},
      {"wgmma 64 x 128", 2, run_hopper<products<128, false>, kThreads, kFew, kNarrow>, true},
      {"wgmma 64 x 128, A in registers", 2,
       run_hopper<products<128, true>, kThreads, kFew, kNarrow>, true},
      {"wgmma 64 x 64, A in registers", 2, run_hopper<products<64, true>, kThreads, kFew, kNarrow>,
       true},
  };
}

}  // namespace leq::LEQ_GPU
