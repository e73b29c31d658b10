// Whole steps of a backend: their operations are recorded and replayed, and their time is divided
// into parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "backend/kv_types.h"
#include "backend/operations.h"

namespace leq {

enum class StepPart : std::uint8_t {
  load,       // rows of the embedding
  quant,      // norms with their codes, codes of outputs that are not fused
  gemm,       // linears, with operations fused into them
  attention,  // rotary embedding, stores to the cache, attention
  comm,       // exchange between devices
  sync,       // everything else: waits, download of logits, the host's own work
  sample,     // sampling of the next token
  delta,      // Gated DeltaNet between its linears
};
inline constexpr std::array<std::string_view, 8> kStepPartNames = {
    "load", "quant", "gemm", "attention", "comm", "sync", "sample", "delta"};

struct PartTimes {
  double seconds = 0;
  std::uint64_t bytes = 0;  // bytes that the operations must move at least
  std::int64_t operations = 0;
};
struct StepTimes {
  std::array<PartTimes, kStepPartNames.size()> parts;

  PartTimes& operator[](StepPart part) { return parts[static_cast<std::size_t>(part)]; }
  const PartTimes& operator[](StepPart part) const { return parts[static_cast<std::size_t>(part)]; }
};

// The lists in host memory that the operations of one step read, and the step's owner. Two steps of
// an owner with lists of equal lengths are the same operations on the same blocks; only the numbers
// in the lists and the batch's positions and pages differ.
struct Step {
  BatchView batch;
  std::array<std::span<const std::int32_t>, 3> lists;  // token ids, positions, rows with logits
  std::span<RopeTable> ropes = {};                     // the tables that the operations read
  std::int64_t context = 0;                            // largest number of positions of a sequence
  std::array<const void*, 2> owner = {};               // device memory of workspace and cache
  std::span<const std::int32_t> copies = {};           // KvLayer::copies of the cache's pages
  std::span<const std::int32_t> frames = {};           // KvLayer::frames
};
struct StepCounts {
  std::int64_t recorded = 0, replayed = 0;
  std::string failure;  // why a recording failed; later steps run one operation at a time
};

// Steps of a decoder as a whole: they are recorded and replayed if the device can do so, and timed
// by their parts.
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
