// Launches a kernel on a stream: for the files that hold kernels.
#pragma once

#include "cuda/intrinsics/simt.h"
#include "cuda/rt/rt.h"

#ifdef __CUDACC__
#include <array>
#else
#include <functional>
#endif

namespace leq::LEQ_GPU::rt {

// When a kernel begins. early: while the kernel in front of it still runs, where the hardware can.
// All its threads call ptx::wait_for_predecessor before they read what other kernels write, write
// anything, or end.
enum class Start : std::uint8_t { in_order, early };

// `kernel` names it in reports. Each kernel is allowed DeviceInfo::shared_limit_bytes of static and
// dynamic shared memory together, before its first launch: unasked it would have 48 KB, so that one
// with static memory must ask for less than 48 KB of dynamic memory too.
struct Launch {
  const char* kernel = "";
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic
  Start start = Start::in_order;
  unsigned cluster = 1;  // neighbouring blocks in x that run together, from 9.0 on
};

#ifdef __CUDACC__
// What cudaLaunchKernelEx wants; `attributes` must outlive its use.
using LaunchAttributes = std::array<cudaLaunchAttribute, 2>;
cudaLaunchConfig_t launch_config(const Launch& launch, const void* kernel, Stream& stream,
                                 LaunchAttributes& attributes);
void check_launch(cudaError_t result, const Launch& launch);
cudaStream_t handle(Stream& stream);  // for the libraries that bench/gpu measures beside

template <class... Parameters, class... Arguments>
void run(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
         const Arguments&... arguments) {
  LaunchAttributes attributes;
  const cudaLaunchConfig_t config =
      launch_config(launch, reinterpret_cast<const void*>(kernel), stream, attributes);
  check_launch(cudaLaunchKernelEx(&config, kernel, arguments...), launch);
}
#else
// `code` is the kernel's address, for the count of launches.
void enqueue(Stream& stream, const Launch& launch, const void* code, std::function<void()> thread);

// Arguments are copied now, as CUDA does.
template <class... Parameters, class... Arguments>
void run(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
         const Arguments&... arguments) {
  enqueue(stream, launch, reinterpret_cast<const void*>(kernel),
          [kernel, arguments...] { kernel(arguments...); });
}
#endif

}  // namespace leq::LEQ_GPU::rt
