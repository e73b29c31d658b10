// Steps of a decoder as a whole: they are recorded and replayed if the device can do so, and timed
// by their parts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/kv_types.h"
#include "backend/step_parts.h"
#include "backend/tables.h"

namespace leq {

// The lists in host memory that the operations of one step read, and the step's owner. Two steps of
// an owner with lists of equal lengths are the same operations on the same blocks; only the numbers
// in the lists and the batch's positions and pages differ.
struct Step {
  BatchView batch;
  std::array<std::span<const std::int32_t>, 3> lists;  // token ids, positions, rows with logits
  RopeTable* rope = nullptr;                           // the table that the operations read
  std::int64_t context = 0;                            // largest number of positions of a sequence
  std::array<const void*, 2> owner = {};               // device memory of workspace and cache
  std::span<const std::int32_t> copies = {};           // KvLayer::copies of the cache's pages
};
struct StepCounts {
  std::int64_t recorded = 0, replayed = 0;
  std::string failure;  // why a recording failed; later steps run one operation at a time
};

class Steps {
 public:
  virtual ~Steps() = default;

  // Calls `operations`, which calls a backend's operations and reads only the lists of `step`. A
  // device may record them and replay the recording in later steps that differ only in numbers,
  // instead of calling `operations`.
  virtual void step(const Step&, const std::function<void()>& operations) { operations(); }
  // Whether steps are recorded, if the device can do so; on by default.
  virtual void record_steps(bool) {}
  virtual StepCounts step_counts() const { return {}; }

  // Starts timing the operations from here on, until stop_times, which waits for them. The seconds
  // of all parts add up to the time between the two calls.
  virtual void start_times() = 0;
  virtual StepTimes stop_times() = 0;
};

}  // namespace leq
