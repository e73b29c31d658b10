// The host side of sampling on the device: uploads requests and downloads tokens; logits stay on
// the device. Allocates once: 4.2 MB for the rows of one launch, 1 MB for changed logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/host/staging.h"
#include "cuda/host/step_graphs.h"
#include "cuda/kernels/sample/sample.h"

namespace leq::LEQ_GPU {

class DeviceSampler {
 public:
  DeviceSampler(int device, rt::Stream& stream, Staging& staging);

  // Enqueues sampling of the first rows of `logits` [T][V], and the copy of their tokens to the
  // host. A row with a cutoff that only the host supports (draws_on_host) gets its likeliest token.
  // Throws Error if the logit changes of the requests do not fit into the staging ring.
  void launch(const FloatRows& logits, std::int64_t vocabulary,
              std::span<const SampleRequest> requests);
  // The tokens of the last launch, valid after the stream was synchronized. They equal those of
  // HostSampler::draw.
  std::span<const std::int32_t> drawn() const;

  // Enqueues sampling of at most kMaxRows rows, the maximum of a recorded step. The tokens stay on
  // the device, at tokens(), until the next call of this function or of launch.
  static constexpr std::size_t kMaxRows = StepGraphs::kMaxRows;
  void draw(const FloatRows& logits, std::int64_t vocabulary,
            std::span<const SampleRequest> requests);
  const std::int32_t* tokens() const {
    return reinterpret_cast<const std::int32_t*>(tokens_.data());
  }
  // The number of tokens in tokens(), and the sequence number of the call that drew these tokens.
  std::int64_t rows() const { return rows_; }
  std::uint64_t number() const { return number_; }

 private:
  // The number of rows per launch, which is enough to use the whole device.
  static constexpr std::size_t kLaunchRows = 64;
  void draw_together(const FloatRows& logits, std::int64_t vocabulary,
                     std::span<const SampleRequest> requests, std::int32_t* drawn);

  rt::Stream& stream_;
  Staging& staging_;
  DeviceScratch states_, candidates_, saved_, tokens_;
  std::int64_t rows_ = 0;
  std::uint64_t number_ = 0;
  Pinned pinned_;
  std::size_t downloaded_ = 0;
  std::vector<std::byte> lists_;  // requests, uploaded to the device in one piece
};

}  // namespace leq::LEQ_GPU
