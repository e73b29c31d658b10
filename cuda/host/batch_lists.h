// A batch's runs, rows and pages on the device, uploaded once per step and used by all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cuda/host/staging.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// For every page of the cache, its f16 copy and its frame; empty: the cache has none.
struct PageTables {
  std::span<const std::int32_t> copies, frames;
};
// Returns a batch's numbers as the device reads them: runs, the same runs with frames in place of
// pages, the run of each row, `more`, pages, and each page's f16 copy and frame.
std::vector<std::int32_t> batch_numbers(const BatchView& batch, const PageTables& tables,
                                        std::span<const std::int32_t> more = {});
// Returns kernel arguments for the same batch, with `more` numbers between rows and pages.
AttentionBatch batch_at(const std::int32_t* there, const BatchView& batch, bool frames,
                        std::int64_t more = 0);

class BatchLists {
 public:
  explicit BatchLists(Staging& staging) : staging_(staging) {}
  AttentionBatch push(const BatchView& batch, const PageTables& tables);

 private:
  Staging& staging_;
  std::vector<std::int32_t> numbers_;
  const std::int32_t* there_ = nullptr;  // copy of numbers_ on the device
  std::uint64_t round_ = 0;              // round of the staging ring in which there_ is valid
};

}  // namespace leq::LEQ_GPU
