// Act online on the device: the state of a moving scale lies there, and kernels carry out its steps
// (backend/online_scale.h) without asking the host. A step of one row is part of the kernel that
// finishes the row (Quantize::online); a step of more rows takes three launches.
#pragma once

#include <cstdint>

#include "backend/online_scale.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

struct OnlineRecord {
  OnlineOptions options;
  OnlineState state;
};

// Codes of finished f32 rows, with one scale for all of them or, where the scale gave up, one for
// each. A step with a row that is not finite, and all steps after it until the host has heard of
// it, leave the state as it is.
struct OnlineArguments {
  FloatRows x;
  std::int64_t tokens = 0, width = 0;
  Quantize quantize;            // with its online; scale is not looked at
  float* largest = nullptr;     // [T] scratch
  unsigned* clipped = nullptr;  // [T] scratch
};
void launch_online(const OnlineArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
