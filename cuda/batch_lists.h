// A batch's runs, rows and pages on the device: pushed once for all layers of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cuda/launch.h"
#include "cuda/staging.h"

namespace leq::LEQ_GPU {

class BatchLists {
 public:
  explicit BatchLists(Staging& staging) : staging_(staging) {}
  AttentionBatch push(const BatchView& batch);

 private:
  Staging& staging_;
  std::vector<std::int32_t> lists_;      // runs, then the run of each row, then pages
  const std::int32_t* there_ = nullptr;  // lists_ on the device,
  std::uint64_t round_ = 0;              // in this round of the ring
};

}  // namespace leq::LEQ_GPU
