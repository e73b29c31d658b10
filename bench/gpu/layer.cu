// What a decode step reads and waits for, without its arithmetic: the operations of llama-7b's
// layers (int8, one sequence at 2K), each of which needs all results of the one before. They run as
// launches with early starts, as in the backend's graphs, and in one grid of resident blocks, which
// wait on counters in memory. In both, blocks may prefetch their weights into L2 while they wait.
// The times tell whether a persistent step would be faster (bench/results/gpu-h200.md).
#include <vector>

#include "base/error.h"
#include "bench/gpu/data.h"
#include "bench/gpu/timing.h"
#include "cuda/intrinsics/peers.h"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU::bench {
namespace {

constexpr int kThreads = 256, kBlocks = 4;  // of a multiprocessor, as int_gemv_groups<8>
constexpr int kLoads = 4;                   // of 16 bytes, which a thread has in flight
constexpr int kStepBytes = kThreads * kLoads * 16, kLineBytes = 128;
constexpr int kMostTiles = 1376, kLayers = 4, kOperations = 8;
constexpr int kMostPolls = 1 << 21;  // a second; a wait that ends so makes results wrong

// An operation's tiles are the blocks of its launch. Rounds are loads of inputs that depend on each
// other, with a barrier after each.
struct Operation {
  int tiles, tile_bytes, rounds;
};
constexpr Operation kLayer[kOperations] = {{4, 0, 2},                 // norm
                                           {768, 4 * kStepBytes, 1},  // q, k, v
                                           {24, 0, 2},  // RoPE, and keys and values to their pages
                                           {128, 8 * kStepBytes, 9},    // attention
                                           {256, 4 * kStepBytes, 1},    // o
                                           {4, 0, 2},                   // norm
                                           {1376, 4 * kStepBytes, 2},   // gate, up
                                           {256, 11 * kStepBytes, 1}};  // down

struct Layers {
  Operation operations[kOperations];
  std::int64_t weights_at[kOperations];  // in a layer
  std::int64_t layer_bytes;
  const std::uint8_t* weights;
  int* results;       // [1 + kLayers * kOperations][kMostTiles]; the first row is the input
  unsigned* arrived;  // [kLayers * kOperations]: blocks that have finished the operation
  int prefetched;     // bytes of a tile
};

__device__ __forceinline__ void load_step(const std::uint8_t* from, uint4 (&words)[kLoads]) {
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    words[k] = ptx::load_once(from + (k * kThreads + static_cast<int>(threadIdx.x)) * 16);
  }
}

__device__ __forceinline__ int read_result(const int* at) {
  return __float_as_int(ptx::load_relaxed(reinterpret_cast<const float*>(at)));
}

// Runs a tile of operation `index` of all layers; `wait` waits for the operation before.
template <class Wait>
__device__ __forceinline__ void run_tile(const Layers& a, int index, int tile, int prefetched,
                                         Wait wait) {
  const int layer = index / kOperations, i = index % kOperations;
  const Operation& operation = a.operations[i];
  const int bytes = operation.tile_bytes;
  if (bytes == 0) ptx::let_successor_start();
  const std::uint8_t* const weights = a.weights + layer * a.layer_bytes + a.weights_at[i] +
                                      std::int64_t{tile} * operation.tile_bytes;
  uint4 next[kLoads] = {};
  if (bytes > 0) load_step(weights, next);
  for (int at = kStepBytes + static_cast<int>(threadIdx.x) * kLineBytes;
       at < min(prefetched, bytes); at += kThreads * kLineBytes) {
    ptx::prefetch(weights + at);
  }
  wait();
  const int* const inputs = a.results + std::int64_t{index} * kMostTiles;
  const int count = a.operations[(i + kOperations - 1) % kOperations].tiles;
  int sum = 0;
  for (int k = static_cast<int>(threadIdx.x); k < count; k += kThreads) {
    sum += read_result(inputs + k);
  }
#pragma unroll 1
  for (int at = 0; at < bytes; at += kStepBytes) {
    uint4 words[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) words[k] = next[k];
    if (at + kStepBytes < bytes) load_step(weights + at + kStepBytes, next);
#pragma unroll
    for (const uint4& word : words) {
      sum += static_cast<int>(word.x ^ word.y ^ word.z ^ word.w);
    }
  }
  if (bytes > 0) ptx::let_successor_start();
  sum = block_sum(sum);
  for (int round = 0; round < operation.rounds; ++round) {
    sum += read_result(inputs + static_cast<unsigned>(sum) % static_cast<unsigned>(count));
    __syncthreads();
  }
  if (threadIdx.x == 0) a.results[std::int64_t{index + 1} * kMostTiles + tile] = sum * 31 + tile;
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    run_operation(const LEQ_GRID_CONSTANT Layers a, int index) {
  LEQ_BOUNDS(kThreads);
  run_tile(a, index, static_cast<int>(blockIdx.x), a.prefetched,
           [] { ptx::wait_for_predecessor(); });
}

// All blocks are resident: the grid has at most kBlocks blocks for each multiprocessor.
__global__ void __launch_bounds__(kThreads, kBlocks) run_layers(const LEQ_GRID_CONSTANT Layers a) {
  LEQ_BOUNDS(kThreads);
  const int first = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  for (int index = 0; index < kLayers * kOperations; ++index) {
    const int tiles = a.operations[index % kOperations].tiles;
    if (first >= tiles) continue;
    for (int tile = first; tile < tiles; tile += blocks) {
      run_tile(a, index, tile, tile == first ? a.prefetched : 0, [&] {
        if (index == 0 || tile != first) return;
        const int before = a.operations[(index - 1) % kOperations].tiles;
        const auto needed = static_cast<unsigned>(min(before, blocks));
        if (threadIdx.x == 0) {
          for (int polls = 0; look(a.arrived + index - 1) < needed && polls < kMostPolls; ++polls) {
            __nanosleep(20);
          }
          __threadfence();
        }
        __syncthreads();
      });
    }
    __syncthreads();
    if (threadIdx.x == 0) ptx::add_acquire_release(a.arrived + index, 1u);
  }
}

// The layers in device memory.
class Problem {
 public:
  Problem(bool tiny, rt::Stream& stream)
      : stream_(stream),
        tiny_(tiny),
        layers_(layers_of(tiny)),
        weights_(static_cast<std::size_t>(layers_.layer_bytes * kLayers), 255, stream),
        results_(Memory::filled(kResultBytes, 0, stream)),
        arrived_(Memory::filled(kArrivedBytes, 0, stream)) {
    layers_.weights = weights_.as<std::uint8_t>();
    layers_.results = results_.as<int>();
    layers_.arrived = arrived_.as<unsigned>();
  }

  // Returns microseconds of a layer. `blocks`: of the grid; 0: one launch for each operation.
  double measure(int blocks, int prefetched) {
    layers_.prefetched = prefetched;
    const Layers& a = layers_;
    const auto launch = [&](int) {
      if (blocks > 0) {
        rt::fill_zero(a.arrived, kArrivedBytes, stream_);
        const auto count = static_cast<unsigned>(blocks);
        rt::run(
            stream_,
            {"run_layers", dim3(count), dim3(kThreads), 0, rt::Start::in_order, tiny_ ? count : 1},
            run_layers, a);
        return;
      }
      for (int index = 0; index < kLayers * kOperations; ++index) {
        const auto tiles = static_cast<unsigned>(a.operations[index % kOperations].tiles);
        rt::run(stream_, {"run_operation", dim3(tiles), dim3(kThreads), 0, rt::Start::early},
                run_operation, a, index);
      }
    };
    const double us = microseconds(stream_, 1, launch) / kLayers;
    // Once more without the results of other runs, so that those of a read before its wait are
    // wrong.
    rt::fill_zero(a.results, kResultBytes, stream_);
    launch(0);
    return us;
  }

  // Returns the results of the last operation, which depend on all others.
  std::vector<int> results() const {
    std::vector<int> last(static_cast<std::size_t>(layers_.operations[kOperations - 1].tiles));
    rt::copy_to_host(last.data(), layers_.results + kLayers * kOperations * kMostTiles,
                     last.size() * sizeof(int), stream_);
    rt::synchronize(stream_);
    return last;
  }
  double layer_bytes() const { return static_cast<double>(layers_.layer_bytes); }

 private:
  static constexpr std::size_t kSteps = kLayers * kOperations,
                               kResultBytes = (1 + kSteps) * kMostTiles * sizeof(int),
                               kArrivedBytes = kSteps * sizeof(unsigned);

  static Layers layers_of(bool tiny) {
    Layers layers = {};
    for (int i = 0; i < kOperations; ++i) {
      Operation& operation = layers.operations[i] = kLayer[i];
      if (tiny) operation.tiles = (operation.tiles + 63) / 64;
      layers.weights_at[i] = layers.layer_bytes;
      layers.layer_bytes += std::int64_t{operation.tiles} * operation.tile_bytes;
    }
    return layers;
  }

  rt::Stream& stream_;
  bool tiny_;  // the grid is a cluster, as only blocks of a cluster always run at once on the
               // emulator
  Layers layers_;
  Memory weights_, results_, arrived_;
};

void body(const Options& options, rt::Stream& stream) {
  const int multiprocessors = options.tiny ? 1 : rt::device_of(stream).multiprocessors;
  Problem problem(options.tiny, stream);
  std::vector<int> expected;
  print_head({"layer of llama-7b int8 without arithmetic", "prefetched per block", "us", "GB/s",
              "of read"});
  for (const int blocks : {0, kBlocks, kBlocks / 2}) {
    for (const int prefetched : {0, 3 * kStepBytes}) {
      const double us = problem.measure(blocks * multiprocessors, prefetched);
      const double gbps = problem.layer_bytes() / us * 1e-3;
      print_row({blocks == 0 ? "8 launches" : number(blocks, 0) + " blocks stay resident",
                 number(prefetched, 0), number(us, 1), number(gbps, 0),
                 share(options, "read_gbps", gbps)});
      const std::vector<int> results = problem.results();
      if (expected.empty()) expected = results;
      require(results == expected, "results differ from those of the first row");
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}
