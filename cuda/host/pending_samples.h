// Draws whose tokens the host fetches later, while the device continues. Each draw has pinned
// memory for its tokens and earlier faults, and an event after the copies to that memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/operations.h"
#include "cuda/host/device_sampler.h"
#include "cuda/host/faults.h"
#include "cuda/host/memory.h"

namespace leq::LEQ_GPU {

class PendingSamples {
 public:
  // All arguments must outlive this object, and it must outlive the samples that begin() returns.
  PendingSamples(int device, rt::Stream& stream, DeviceSampler& sampler, Faults& faults)
      : device_(device), stream_(stream), sampler_(sampler), faults_(faults) {}

  // Implements Operations::begin_sample. Returns null if there are more rows than
  // DeviceSampler::kMaxRows or cutoffs that only the host supports.
  std::unique_ptr<PendingSample> begin(const FloatRows& logits, std::int64_t vocabulary,
                                       std::span<const SampleRequest> requests);

 private:
  struct HostCopy {
    Pinned fault, tokens;
    rt::EventOwner copied;
  };
  class Begun;

  std::unique_ptr<HostCopy> take_host_copy();

  int device_;
  rt::Stream& stream_;
  DeviceSampler& sampler_;
  Faults& faults_;
  std::vector<std::unique_ptr<HostCopy>> idle_;
};

}  // namespace leq::LEQ_GPU
