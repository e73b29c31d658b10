// Measures the limits of this GPU: bandwidths, gaps between launches, and loops of one instruction
// on registers. Prints a table whose first two columns are name and value.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "base/error.h"
#include "bench/gpu/timing.h"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/intrinsics/wgmma.h"

namespace leq::LEQ_GPU::bench {
namespace {

constexpr int kThreads = 256, kChains = 8, kSteps = 4096;

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) fail("CUDA: ", what, ": ", cudaGetErrorString(result));
}

// --- memory ---

// Reads `words` x 16 bytes `passes` times; the result is stored only if it has an unlikely value.
__global__ void __launch_bounds__(kThreads)
    read_words(const uint4* from, std::int64_t words, int passes, unsigned* out) {
  constexpr int kAhead = 8;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  unsigned sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words;
         i += kAhead * step) {
      uint4 v[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t at = i + k * step;
        v[k] = at < words ? __ldcg(from + at) : uint4{0, 0, 0, 0};
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
  }
  if (sum == 0x12345678u) *out = sum;
}

// --- instructions ---

__global__ void __launch_bounds__(kThreads) dp4a_loop(unsigned seed, int* out) {
  int sums[kChains] = {};
  unsigned a = seed * threadIdx.x, b = seed ^ 0x01020304u;
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int k = 0; k < kChains; ++k) sums[k] = ptx::dp4a(a + k, b, sums[k]);
    b = b * 5 + 1;
  }
  int sum = 0;
  for (const int s : sums) sum ^= s;
  if (sum == 0x12345678) *out = sum;
}

__global__ void __launch_bounds__(kThreads) fma_loop(unsigned seed, int* out) {
  float sums[kChains] = {};
  const float a = static_cast<float>(threadIdx.x) * 1e-3f, b = static_cast<float>(seed) * 1e-9f;
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int k = 0; k < kChains; ++k) sums[k] = fmaf(sums[k], a, b);
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  if (sum == 12345.0f) *out = 1;
}

__global__ void __launch_bounds__(kThreads) mma_s8_loop(unsigned seed, int* out) {
  int sums[kChains][4] = {};
  const std::uint32_t mix = seed * (threadIdx.x + 1);
  const std::uint32_t a[4] = {mix, mix * 3, mix * 5, mix * 7}, b[2] = {mix * 11, mix * 13};
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int k = 0; k < kChains; ++k) ptx::mma_m16n8k32_s8(sums[k], a, b);
  }
  int sum = 0;
  for (const auto& s : sums) sum ^= s[0] ^ s[1] ^ s[2] ^ s[3];
  if (sum == 0x12345678) *out = sum;
}

// Products of f16 with f32 sums, for the second tensor-core loop.
__device__ void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                 const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(kThreads) mma_f16_loop(unsigned seed, int* out) {
  float sums[kChains][4] = {};
  const std::uint32_t mix = (seed * (threadIdx.x + 1)) & 0x3bff3bffu;  // numbers below 1
  const std::uint32_t a[4] = {mix, mix ^ 0x11, mix ^ 0x101, mix ^ 0x1001};
  const std::uint32_t b[2] = {mix ^ 0x80008000u, mix ^ 0x22};
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int k = 0; k < kChains; ++k) mma_m16n8k16_f16(sums[k], a, b);
  }
  float sum = 0;
  for (const auto& s : sums) sum += s[0] + s[1] + s[2] + s[3];
  if (sum == 12345.0f) *out = 1;
}

// Two warpgroups per block keep a multiprocessor's tensor cores busy. They multiply 64 x 256 x 32
// with both operands in shared memory. Four products are issued at a time while four others are in
// flight.
constexpr int kOperandRow = 128;  // bytes of a row

__global__ void __launch_bounds__(kThreads, 1) wgmma_s8_loop(unsigned seed, int* out) {
  if constexpr (ptx::kHopper) {
    __shared__ alignas(1024) unsigned char tiles[(2 * 64 + 256) * kOperandRow];
    for (int i = static_cast<int>(threadIdx.x); i < int{sizeof tiles} / 4; i += kThreads) {
      reinterpret_cast<unsigned*>(tiles)[i] = seed * (i + 1);
    }
    ptx::fence_async();
    __syncthreads();
    int sums[128] = {};
    const auto group = static_cast<int>(threadIdx.x / 128);
    const std::uint64_t a = ptx::matrix_operand(tiles + group * 64 * kOperandRow);
    const std::uint64_t b = ptx::matrix_operand(tiles + 128 * kOperandRow);
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        ptx::wgmma(sums, ptx::next_columns(a, k), ptx::next_columns(b, k), true);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
    }
    ptx::wgmma_finish(sums);
    int sum = 0;
    for (const int s : sums) sum ^= s;
    if (sum == 0x12345678) *out = sum;
  } else {
    ptx::wrong_architecture();
  }
}

__global__ void nothing() {}

// --- times ---

class Events {
 public:
  Events() {
    check(cudaEventCreate(&start_), "event");
    check(cudaEventCreate(&end_), "event");
  }
  ~Events() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  // Returns the time of `work` in microseconds, without a graph.
  double around(cudaStream_t stream, const std::function<void()>& work) {
    check(cudaEventRecord(start_, stream), "event");
    work();
    check(cudaEventRecord(end_, stream), "event");
    check(cudaEventSynchronize(end_), "kernel");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start_, end_), "event");
    return ms * 1e3;
  }

 private:
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

void print(const char* name, double value, const char* meaning) {
  print_row({name, number(value, value < 100 ? 2 : 0), meaning});
}

void measure_memory(rt::Stream& stream, int blocks) {
  std::size_t free = 0, all = 0;
  check(cudaMemGetInfo(&free, &all), "memory");
  const std::size_t bytes = std::min<std::size_t>(std::size_t{4} << 30, free / 4) / 4096 * 4096;
  char *from = nullptr, *to = nullptr;
  check(cudaMalloc(&from, bytes), "memory");
  check(cudaMalloc(&to, bytes), "memory");
  check(cudaMemset(from, 0x5a, bytes), "fill");
  const cudaStream_t handle = rt::handle(stream);
  const double copy = microseconds(stream, 1, [&](int) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle), "copy");
  });
  print("copy_gbps", 2e-3 * static_cast<double>(bytes) / copy, "copy, bytes read and written");
  auto* const sink = reinterpret_cast<unsigned*>(to);
  const auto read = [&](std::size_t size, int passes) {
    const double us = microseconds(stream, 1, [&](int) {
      read_words<<<blocks, kThreads, 0, handle>>>(
          reinterpret_cast<const uint4*>(from), static_cast<std::int64_t>(size / 16), passes, sink);
    });
    return 1e-3 * static_cast<double>(size) * passes / us;
  };
  print("read_gbps", read(bytes, 1), "reading memory");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "device");
  print("l2_gbps", read(static_cast<std::size_t>(properties.l2CacheSize) / 4, 64),
        "reading a quarter of the second cache");
  cudaFree(from);
  cudaFree(to);
}

void measure_launches(rt::Stream& stream) {
  constexpr int kLaunches = 2000;
  const cudaStream_t handle = rt::handle(stream);
  Events events;
  const auto launch_all = [&] {
    for (int i = 0; i < kLaunches; ++i) nothing<<<1, 32, 0, handle>>>();
  };
  launch_all();
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) times.push_back(events.around(handle, launch_all));
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  print("launch_us", times[4] / kLaunches, "from launch to launch on a stream");
  print("graph_launch_us",
        microseconds(stream, kLaunches, [&](int) { nothing<<<1, 32, 0, handle>>>(); }),
        "from kernel to kernel in a graph");
}

void measure_instructions(rt::Stream& stream) {
  int* sink = nullptr;
  check(cudaMalloc(&sink, 4), "memory");
  const rt::DeviceInfo device = rt::device_of(stream);
  // Returns 1e12 operations per second; `operations`: of one block in one iteration of the loop.
  const auto rate_of_blocks = [&](void (*loop)(unsigned, int*), int each, double operations) {
    const int blocks = device.multiprocessors * each;
    const double us = microseconds(stream, 1, [&](int) {
      loop<<<blocks, kThreads, 0, rt::handle(stream)>>>(0x9e3779b1u, sink);
    });
    return 1e-6 * operations * kSteps * blocks / us;
  };
  // Returns 1e12 operations per second; `operations`: of one chain of one thread.
  const auto rate = [&](void (*loop)(unsigned, int*), double operations) {
    return rate_of_blocks(loop, 4, operations * kChains * kThreads);
  };
  print("dp4a_tops", rate(dp4a_loop, 8), "dp4a on registers");
  print("fma_tflops", rate(fma_loop, 2), "f32 fma on registers");
  print("mma_s8_tops", rate(mma_s8_loop, 2.0 * 16 * 8 * 32 / 32), "mma.m16n8k32.s8 on registers");
  print("mma_f16_tflops", rate(mma_f16_loop, 2.0 * 16 * 8 * 16 / 32),
        "mma.m16n8k16.f16 on registers, f32 sums");
  if (device.major == 9) {
    print("wgmma_s8_tops", rate_of_blocks(wgmma_s8_loop, 1, 2.0 * 2 * 4 * 64 * 256 * 32),
          "wgmma.m64n256k32.s8, operands in shared memory");
  }
  cudaFree(sink);
}

void body(const Options&, rt::Stream& stream) {
  print_head({"ceiling", "value", "of"});
  measure_memory(stream, rt::device_of(stream).multiprocessors * 8);
  measure_launches(stream);
  measure_instructions(stream);
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}
