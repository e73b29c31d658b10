// Launches a kernel on a stream; for files that contain kernels.
#pragma once

#include "base/error.h"
#include "cuda/intrinsics/simt.h"
#include "cuda/rt/rt.h"

#ifdef __CUDACC__
#include <array>
#else
#include <functional>
#endif

namespace leq::LEQ_GPU::rt {

// When a kernel starts. early: while the preceding kernel is still running, if the hardware
// supports it. All threads must then call ptx::wait_for_predecessor before they read what other
// kernels write, write anything, or end.
enum class Start : std::uint8_t { in_order, early };

// `kernel` is the name in reports. A launch of no blocks does nothing. Before its first launch each
// kernel is allowed to use DeviceInfo::shared_limit_bytes of static and dynamic shared memory
// together; the default is 48 KB, of which static memory would reduce the dynamic part.
struct Launch {
  const char* kernel = "";
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic shared memory
  Start start = Start::in_order;
  unsigned cluster = 1;  // neighbouring blocks in x that form a cluster, on 9.0 and later
};

// The blocks of a launch. Throws Error if hardware has no such grid.
inline dim3 grid(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  ensure(x >= 0 && x <= 0x7fffffff && y <= 65535 && z <= 65535, "launch of ", x, " x ", y, " x ", z,
         " blocks");
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

#ifdef __CUDACC__
// The configuration for cudaLaunchKernelEx, which `attributes` must outlive.
using LaunchAttributes = std::array<cudaLaunchAttribute, 2>;
cudaLaunchConfig_t launch_config(const Launch& launch, const void* kernel, Stream& stream,
                                 LaunchAttributes& attributes);
void check_launch(cudaError_t result, const Launch& launch);
cudaStream_t handle(Stream& stream);  // for the libraries that bench/gpu compares with

template <class... Parameters, class... Arguments>
void run(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
         const Arguments&... arguments) {
  if (launch.blocks.x == 0 || launch.blocks.y == 0) return;
  LaunchAttributes attributes;
  const cudaLaunchConfig_t config =
      launch_config(launch, reinterpret_cast<const void*>(kernel), stream, attributes);
  check_launch(cudaLaunchKernelEx(&config, kernel, arguments...), launch);
}
#else
// `code` is the kernel's address; launches are counted by this address.
void enqueue(Stream& stream, const Launch& launch, const void* code, std::function<void()> thread);

// Arguments are copied at the call, as in CUDA.
template <class... Parameters, class... Arguments>
void run(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
         const Arguments&... arguments) {
  if (launch.blocks.x == 0 || launch.blocks.y == 0) return;
  enqueue(stream, launch, reinterpret_cast<const void*>(kernel),
          [kernel, arguments...] { kernel(arguments...); });
}
#endif

}  // namespace leq::LEQ_GPU::rt
