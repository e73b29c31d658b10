// Emulates the asynchronous units of compute capability 9.0: barriers in shared memory that count
// bytes, tile copies by the copy engine, and matrix products of tensor cores that overlap with
// threads. Each operation may take effect at any time between its start and the wait for it;
// Schedule::copy_arrival selects one of these two ends. With at_issue a warp that arrives at a
// barrier is suspended until no other warp can run. Called through hopper.h and wgmma.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/rt/tensor_map.h"

namespace simt {

// --- for kernels ---

// As on hardware, dynamic shared memory is only aligned to 128 bytes.
std::uint32_t shared_address(const void* shared);

void barrier_init(std::uint64_t* barrier, unsigned count);
// Announces bytes, then arrives at the barrier.
void barrier_arrive(std::uint64_t* barrier, unsigned bytes);
void barrier_wait(std::uint64_t* barrier, unsigned parity);
// Returns the barrier at the same offset in shared memory of block `rank` of the cluster.
std::uint64_t* barrier_of(std::uint64_t* barrier, unsigned rank);

// `map` points to a TiledBytes, which is read during this call. Copies to the same offset in all
// blocks of the cluster in the bit mask `ranks`, each with the barrier at the same offset.
void tensor_load(void* shared, const void* map, int column, int row, std::uint64_t* barrier,
                 unsigned ranks);

// This thread's part of D[64][2 count] of a warpgroup (wgmma.h).
struct MatrixProduct {
  int* sums;
  int count;                         // number of sums, half the columns of D
  const std::uint32_t* a_registers;  // four registers of A; if null, `a` describes A
  std::uint64_t a, b;
  bool add;
};
void matrix_fence();
void matrix_multiply(const MatrixProduct& product);
void matrix_commit();
void matrix_wait(unsigned groups_left);

// --- for emulator.cpp ---

// The asynchronous operations of one block that are in flight.
struct AsyncWork {
  struct Load {
    leq::LEQ_GPU::rt::TiledBytes matrix;
    unsigned rank;  // rank of the destination block
    std::uint32_t address;
    int column, row;
    std::uint64_t* barrier;
  };
  // Sums that hardware may write at any time. The thread reads poison until they are final.
  struct HeldSums {
    int* sums;
    std::vector<int> values;
  };
  struct Product {
    MatrixProduct what;
    bool done;
  };
  struct ThreadProducts {
    bool fenced = false;
    std::vector<Product> products;     // started but not waited for, oldest first
    std::vector<std::size_t> commits;  // index after each commit group in `products`
    std::vector<HeldSums> held;
  };

  void start_block(std::size_t of_threads);
  // Called when a thread ends; it is a bug if products are then in flight.
  void end_thread(unsigned rank) const;

  std::vector<Load> loads;
  std::vector<ThreadProducts> threads;
};

}  // namespace simt
