// Steps of a decoder as a whole: recorded and replayed where a device can, and timed by their
// parts.
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

// What the operations of one step read of the host's memory, and whose step it is. Two steps of one
// owner with lists of the same lengths are the same operations on the same blocks: only the numbers
// in the lists and the batch's positions and pages differ.
struct Step {
  BatchView batch;
  std::array<std::span<const std::int32_t>, 3> lists;  // ids, positions, rows with logits
  RopeTable* rope = nullptr;                           // that the operations read
  std::int64_t context = 0;                            // positions of one sequence at most
  std::array<const void*, 2> owner = {};               // device memory of workspace and cache
  std::span<const std::int32_t> copies = {};           // of the cache's pages: KvLayer::copies
};
struct StepCounts {
  std::int64_t recorded = 0, replayed = 0;
  std::string failure;  // of a recording: its words; since then steps run one operation at a time
};

class Steps {
 public:
  virtual ~Steps() = default;

  // Calls `operations`, which are calls of a backend's operations that read no lists but those of
  // `step`. A device may record what they do for it, and not call them in later steps that are the
  // same but for numbers.
  virtual void step(const Step&, const std::function<void()>& operations) { operations(); }
  // Whether to record, where a device does; on by default.
  virtual void record_steps(bool) {}
  virtual StepCounts step_counts() const { return {}; }

  // Notes where the time of the operations from here on goes, until stop_times, which waits for
  // them. The parts' seconds add up to the time between the two.
  virtual void start_times() = 0;
  virtual StepTimes stop_times() = 0;
};

}  // namespace leq
