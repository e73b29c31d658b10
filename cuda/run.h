// Launches a kernel on a stream: for the files that hold kernels.
#pragma once

#include "cuda/rt.h"
#include "cuda/simt.h"

#ifndef __CUDACC__
#include <functional>
#endif

namespace leq::LEQ_GPU::rt {

// `kernel` names it in reports. More than 48 KB of dynamic shared memory is allowed up to
// DeviceInfo::shared_limit_bytes.
struct Launch {
  const char* kernel = "";
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // neighbouring blocks in x that run together, from 9.0 on
};

#ifdef __CUDACC__
void before_launch(const Launch& launch, const void* kernel, Stream& stream);
void after_launch(const Launch& launch);
cudaLaunchAttribute cluster_attribute(const Launch& launch);
cudaLaunchConfig_t launch_config(const Launch& launch, Stream& stream);
cudaStream_t handle(Stream& stream);

template <class... Parameters, class... Arguments>
void run(Stream& stream, const Launch& launch, void (*kernel)(Parameters...),
         const Arguments&... arguments) {
  before_launch(launch, reinterpret_cast<const void*>(kernel), stream);
  if (launch.cluster == 1) {
    kernel<<<launch.blocks, launch.threads, launch.shared_bytes, handle(stream)>>>(arguments...);
  } else {
    cudaLaunchAttribute cluster = cluster_attribute(launch);
    cudaLaunchConfig_t config = launch_config(launch, stream);
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, arguments...);
  }
  after_launch(launch);
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
