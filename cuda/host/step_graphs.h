// Steps that are recorded as graphs and replayed: what varies from step to step lies in fixed slots
// on the device, which one small copy fills before the step (docs/cuda.md, The decode step).
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
  // Steps of more rows take a device longer than their launches take the host, by estimate.
  static constexpr std::int64_t kMostRows = 256;

  StepGraphs(int device, rt::Stream& stream, Staging& staging);

  // Runs the operations of a step; where each of its runs has one row, at most kMostRows, by a
  // graph. The first step of a kind is run as it is and takes the memory that its operations need,
  // the second is recorded, all others are replayed. Where a recording fails, for whatever reason
  // but a bug, this and all later steps run as they are; counts() says why.
  void run(const Step& step, const std::function<void()>& operations);
  // Recordings hold addresses: to be called wherever device memory is taken or given back.
  void forget() { recordings_.clear(); }
  void enable(bool on) { enabled_ = on; }
  StepCounts counts() const { return counts_; }

  // While a step runs: where a list of it lies; its batch, whose end is that of its bucket of
  // contexts, so that what is launched for it serves all steps of the kind. Null for others.
  const std::int32_t* slot_of(std::span<const std::int32_t> list) const;
  const AttentionBatch* batch_of(const BatchView& batch) const;

 private:
  // Steps of one kind are the same launches with the same arguments.
  struct Kind {
    std::array<const void*, 2> owner;
    std::int64_t tokens, outputs, end;

    auto operator<=>(const Kind&) const = default;
  };
  struct Recording {
    rt::GraphOwner graph;  // null: seen once
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
  void make_room();
  void give_up(const Error& error);

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
