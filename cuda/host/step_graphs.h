// Records steps as graphs and replays them. Data that vary between steps are in fixed slots on the
// device, which one small copy updates before each step (docs/cuda.md, The decode step).
#pragma once

#include <array>
#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "cuda/host/batch_lists.h"

namespace leq::LEQ_GPU {

class StepGraphs {
 public:
  // For steps with more rows, the device is assumed to take longer than the host's launches.
  static constexpr std::int64_t kMaxRows = 256;

  StepGraphs(int device, rt::Stream& stream, Staging& staging);

  // Runs the operations of a step, by a graph if each of its runs has one row and there are at most
  // kMaxRows. The first step of a kind runs directly, so that its operations allocate their
  // memory; the second is recorded, and later ones are replayed. If a recording fails for any
  // reason except a bug, this and all later steps run directly, and counts() has the reason.
  void run(const Step& step, const std::function<void()>& operations);
  // Recordings contain addresses, so call this when device memory is allocated or freed.
  void clear() { recordings_.clear(); }
  void enable(bool on) { enabled_ = on; }
  StepCounts counts() const { return counts_; }

  // Valid while a step runs: the slot of one of the step's lists (null for other lists); the step's
  // batch, whose `end` is the end of its bucket of contexts, so that launches fit the whole kind.
  const std::int32_t* slot_of(std::span<const std::int32_t> list) const;
  const AttentionBatch* batch_of(const BatchView& batch) const;

 private:
  // Identifies steps that have the same launches with the same arguments.
  struct Kind {
    std::array<const void*, 2> owner;
    std::int64_t tokens, outputs, end;

    auto operator<=>(const Kind&) const = default;
  };
  struct Recording {
    rt::GraphOwner graph;  // null: the kind has been seen only once
    std::uint64_t last_use;
  };
  struct Running {
    const Step& step;
    std::array<const std::int32_t*, 3> slots;
    AttentionBatch batch;
  };
  static std::vector<std::int32_t> numbers_of(const Step& step);
  Running places_of(const Step& step) const;
  rt::GraphOwner record(const std::function<void()>& operations);
  void evict_oldest();
  void disable_recording(const Error& error);

  rt::Stream& stream_;
  Staging& staging_;
  DeviceScratch slots_;
  std::map<Kind, Recording> recordings_;
  std::uint64_t uses_ = 0;
  std::optional<Running> running_;
  StepCounts counts_;
  bool enabled_ = true;
};

}  // namespace leq::LEQ_GPU
