// Draws whose tokens the host fetches later, while the device goes on: each has pinned memory where
// its tokens and the faults until then land, and an event that says when.
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
  // All of them must outlive the pending samples, and these what begin() returns.
  PendingSamples(int device, rt::Stream& stream, DeviceSampler& sampler, Faults& faults)
      : device_(device), stream_(stream), sampler_(sampler), faults_(faults) {}

  // As Operations::begin_sample; null for more rows than DeviceSampler::kMostRows, and for cuts
  // that are the host's.
  std::unique_ptr<PendingSample> begin(const FloatRows& logits, std::int64_t vocabulary,
                                       std::span<const SampleRequest> requests);

 private:
  struct Landing {
    Pinned fault, tokens;
    rt::EventOwner landed;
  };
  class Begun;

  std::unique_ptr<Landing> take_landing();

  int device_;
  rt::Stream& stream_;
  DeviceSampler& sampler_;
  Faults& faults_;
  std::vector<std::unique_ptr<Landing>> idle_;
};

}  // namespace leq::LEQ_GPU
