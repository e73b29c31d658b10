// Online activation scales on the device. The state of a moving scale is in device memory, where
// kernels update it (backend/online_scale.h) without the host. In a step of one row the kernel that
// finishes the row does so (Quantize::online); a step of more rows takes three launches.
#pragma once

#include <cstdint>

#include "backend/online_scale.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

struct OnlineRecord {
  OnlineOptions options;
  OnlineState state;
};

// Encodes finished f32 rows as codes. All rows have one scale, or one scale each after the moving
// scale has been disabled. A step with a row that is not finite leaves the state unchanged, and so
// do all steps after it until the host has read the fault.
struct OnlineArguments {
  FloatRows x;
  std::int64_t tokens = 0, width = 0;
  Quantize quantize;            // quantize.online is required; quantize.scale is ignored
  float* largest = nullptr;     // [T] scratch
  unsigned* clipped = nullptr;  // [T] scratch
};
void launch_online(const OnlineArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
