// A batch's runs, rows and pages on the device: uploaded once per step for all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cuda/host/staging.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// A batch's device layout: runs, the run of each row, `more`, pages, and where pages have f16
// copies the copy of each (`copies`, of all pages of the cache; empty: there are none).
std::vector<std::int32_t> batch_numbers(const BatchView& batch,
                                        std::span<const std::int32_t> copies,
                                        std::span<const std::int32_t> more = {});
// The same batch as kernel arguments, with `more` numbers between rows and pages.
AttentionBatch batch_at(const std::int32_t* there, const BatchView& batch, std::int64_t more = 0);

class BatchLists {
 public:
  explicit BatchLists(Staging& staging) : staging_(staging) {}
  AttentionBatch push(const BatchView& batch, std::span<const std::int32_t> copies);

 private:
  Staging& staging_;
  std::vector<std::int32_t> numbers_;
  const std::int32_t* there_ = nullptr;  // numbers_ on the device,
  std::uint64_t round_ = 0;              // in this round of the ring
};

}  // namespace leq::LEQ_GPU
