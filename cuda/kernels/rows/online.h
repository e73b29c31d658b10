// Online activation scales on the device: the state of a moving scale is in device memory, and
// kernels update it (backend/online_scale.h) without the host. A step of one row is part of the
// kernel that finishes the row (Quantize::online); a step of more rows takes three launches.
#pragma once

#include <cstdint>

#include "backend/online_scale.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

struct OnlineRecord {
  OnlineOptions options;
  OnlineState state;
};

// Codes of finished f32 rows, with one scale for all of them or, once the moving scale is disabled,
// one for each. A step with a row that is not finite, and all steps after it until the host has
// read the fault, leave the state unchanged.
struct OnlineArguments {
  FloatRows x;
  std::int64_t tokens = 0, width = 0;
  Quantize quantize;            // with its online; scale is ignored
  float* largest = nullptr;     // [T] scratch
  unsigned* clipped = nullptr;  // [T] scratch
};
void launch_online(const OnlineArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
