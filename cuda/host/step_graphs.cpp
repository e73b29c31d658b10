#include "cuda/host/step_graphs.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace leq::LEQ_GPU {
namespace {

// Fits 256 rows of 64,000 positions each (one number per page of 64), or of 32,000 with copies
// or frames.
constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
// A graph of a large model has about a megabyte. A server's number of rows changes by one at a
// time, so the numbers in use are close together, and contexts are in one or two buckets.
constexpr std::size_t kMaxRecordings = 128;

// Returns the end of the bucket of contexts that contains positions below `end`.
std::int64_t bucket_end(std::int64_t end, std::int64_t context) {
  std::int64_t bucket = 512;  // one span of attention
  for (const std::int64_t next : {1 << 10, 4 << 10, 16 << 10}) {
    if (bucket < end) bucket = next;
  }
  while (bucket < end) bucket *= 2;
  return std::max(end, std::min(bucket, context));
}

}  // namespace

StepGraphs::StepGraphs(int device, rt::Stream& stream, Staging& staging)
    : stream_(stream), staging_(staging), slots_(device, kSlotBytes) {}

// Returns all data that vary, in the layout of the slots; lengths of lists determine the offsets.
std::vector<std::int32_t> StepGraphs::numbers_of(const Step& step) {
  std::vector<std::int32_t> lists;
  for (const auto& list : step.lists) lists.insert(lists.end(), list.begin(), list.end());
  return batch_numbers(step.batch, {step.copies, step.frames}, lists);
}

StepGraphs::Running StepGraphs::places_of(const Step& step) const {
  std::int64_t listed = 0;
  for (const auto& list : step.lists) listed += std::ssize(list);
  const auto* there = reinterpret_cast<const std::int32_t*>(slots_.data());
  Running running = {step, {}, batch_at(there, step.batch, !step.frames.empty(), listed)};
  running.batch.end = bucket_end(running.batch.end, step.context);
  running.batch.settled = true;
  const std::int32_t* slot = running.batch.row_runs + step.batch.tokens;
  for (std::size_t i = 0; i < step.lists.size(); ++i) {
    running.slots[i] = slot;
    slot += step.lists[i].size();
  }
  return running;
}

rt::GraphOwner StepGraphs::record(const std::function<void()>& operations) {
  rt::begin_capture(stream_);
  try {
    operations();
  } catch (...) {
    rt::drop_capture(stream_);
    throw;
  }
  return rt::end_capture(stream_);
}

void StepGraphs::run(const Step& step, const std::function<void()>& operations) {
  const std::int64_t tokens = step.batch.tokens;
  const bool single_rows = tokens > 0 && std::ssize(step.batch.runs) == tokens;
  if (!enabled_ || !single_rows || tokens > kMaxRows) return operations();
  const std::vector<std::int32_t> numbers = numbers_of(step);
  if (numbers.size() * sizeof(std::int32_t) > kSlotBytes) return operations();
  staging_.send(numbers, slots_.data());
  struct Ending {
    std::optional<Running>& running;
    ~Ending() { running.reset(); }
  } ending{running_};
  running_.emplace(places_of(step));
  const Kind kind = {step.owner, tokens, std::ssize(step.lists[2]), running_->batch.end};
  auto found = recordings_.find(kind);
  if (found == recordings_.end()) {
    operations();
    evict_oldest();
    recordings_.emplace(kind, Recording{nullptr, ++uses_});
    return;
  }
  rt::GraphOwner& graph = found->second.graph;
  found->second.last_use = ++uses_;
  if (graph != nullptr) {
    ++counts_.replayed;
    return rt::launch(*graph, stream_);
  }
  try {
    graph = record(operations);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    disable_recording(error);
    return operations();
  }
  ++counts_.recorded;
  rt::launch(*graph, stream_);
}

// Evicts the least recently used recording if the cache is full.
void StepGraphs::evict_oldest() {
  if (recordings_.size() < kMaxRecordings) return;
  recordings_.erase(std::ranges::min_element(
      recordings_, {}, [](const auto& item) { return item.second.last_use; }));
}

// Nothing of the failed recording has run. Because recording would fail again, all later steps run
// directly. If the error was not due to recording, running directly reports it.
void StepGraphs::disable_recording(const Error& error) {
  enabled_ = false;
  recordings_.clear();
  counts_.failure = error.what();
}

const std::int32_t* StepGraphs::slot_of(std::span<const std::int32_t> list) const {
  if (!running_) return nullptr;
  for (std::size_t i = 0; i < running_->slots.size(); ++i) {
    const auto& named = running_->step.lists[i];
    if (named.data() == list.data() && named.size() == list.size()) return running_->slots[i];
  }
  return nullptr;
}

const AttentionBatch* StepGraphs::batch_of(const BatchView& batch) const {
  const bool same = running_ && running_->step.batch.runs.data() == batch.runs.data();
  return same ? &running_->batch : nullptr;
}

}  // namespace leq::LEQ_GPU
