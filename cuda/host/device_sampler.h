// The host's side of sampling on the device: requests go there, tokens come back, logits stay.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/host/staging.h"
#include "cuda/kernels/sample/sample.h"

namespace leq::LEQ_GPU {

class DeviceSampler {
 public:
  DeviceSampler(int device, rt::Stream& stream, Staging& staging);

  // Puts the draws of rows 0... of `logits` [T][V] on the stream, and the way of their tokens to
  // the host. Rows with a cut that is the host's alone (draws_on_host) get their likeliest token.
  // Throws Error where the requests' changes do not fit into the staging ring.
  void launch(const FloatRows& logits, std::int64_t vocabulary,
              std::span<const SampleRequest> requests);
  // The tokens of the last launch, once the stream has been synchronized; as HostSampler::draw
  // gives them.
  std::span<const std::int32_t> drawn() const;

 private:
  void launch_some(FloatRows logits, std::int64_t vocabulary,
                   std::span<const SampleRequest> requests);

  rt::Stream& stream_;
  Staging& staging_;
  DeviceScratch states_, candidates_, saved_, tokens_;
  Pinned landing_;
  std::size_t landed_ = 0;
  std::vector<std::byte> lists_;  // what goes to the device, in one piece
};

}  // namespace leq::LEQ_GPU
