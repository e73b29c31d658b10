#include "backend/step_times.h"

#include <algorithm>

namespace leq {

std::uint64_t moved_bytes(const Linear& linear) {
  std::uint64_t bytes = 0;
  for (const LinearSegment& segment : linear.parts()) bytes += stored_bytes(segment.weight);
  return bytes;
}

std::uint64_t moved_bytes(const ExpertRoutes& routes, const ExpertLinear& linear) {
  std::uint64_t bytes = 0;
  for (const std::int32_t expert : routes.experts) bytes += moved_bytes(linear(expert));
  return bytes;
}

std::uint64_t moved_bytes(const Embedding& embedding) {
  const auto rows_of = [&](const WeightView& table) {
    return stored_bytes(table) * embedding.ids.size() /
           static_cast<std::uint64_t>(table.padded_rows());
  };
  return rows_of(embedding.tokens) +
         (embedding.positions != nullptr ? rows_of(*embedding.positions) : 0);
}

std::uint64_t moved_bytes(const Rows& rows, std::int64_t tokens) {
  const int terms = rows.format.terms;
  const std::size_t coded = terms > 0 ? 2 * static_cast<std::size_t>(terms) : 1;
  const std::uint64_t row =
      (rows.values != nullptr ? sizeof(float) : 0) + (rows.codes != nullptr ? coded : 0);
  return row * static_cast<std::uint64_t>(tokens * rows.width);
}

std::uint64_t moved_bytes(const BatchView& batch, const AttentionShape& shape, const KvLayer& kv) {
  std::int64_t positions = 0;
  for (const SequenceRun& run : batch.runs) {
    const std::int64_t first =
        shape.window == 0 ? 0 : std::max<std::int64_t>(run.first_position + 1 - shape.window, 0);
    positions += run.end_position() - first;
  }
  return static_cast<std::uint64_t>(positions) * (kv.key_page_bytes + kv.value_page_bytes) /
         kPageTokens;
}

std::uint64_t moved_bytes(const BatchView& batch, const DeltaShape& shape) {
  return 2 * sizeof(float) * batch.runs.size() *
         static_cast<std::uint64_t>(delta_state_numbers(shape));
}

void PartClock::start() {
  times_ = StepTimes();
  part_ = StepPart::sync;
  running_ = true;
  since_ = Clock::now();
}

StepTimes PartClock::stop() {
  switch_to(StepPart::sync);
  running_ = false;
  return times_;
}

void PartClock::switch_to(StepPart part) {
  const Clock::time_point now = Clock::now();
  times_[part_].seconds += std::chrono::duration<double>(now - since_).count();
  part_ = part;
  since_ = now;
}

}  // namespace leq
