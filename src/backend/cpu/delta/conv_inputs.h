// What the layers with a fixed state share: the runs of a sequence, the inputs of a convolution
// over time, and the output rows.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/delta/delta.h"
#include "backend/cpu/rows/rows.h"

namespace leq::cpu {

inline constexpr std::int64_t kMaxTaps = 16;

// Runs tasks that together read `values` numbers, on the thread pool unless these are few: waking
// other threads would take more time than it saves.
template <class Body>
void run_tasks(ThreadPool& pool, std::int64_t tasks, std::int64_t values, Body&& body) {
  constexpr std::int64_t kSerialNumbers = 16384;
  if (values > kSerialNumbers) return pool.run(tasks, body);
  for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
}

// The runs of each sequence: they run one after another, because they write the same state.
std::vector<std::vector<SequenceRun>> chains_of(const BatchView& batch);

// The inputs of a convolution over time: rows of a step and, before the first row of a run, the
// last inputs [taps - 1][channels] in the sequence's state, oldest first; null stands for zeros.
struct ConvInputs {
  const Rows& rows;
  std::int64_t first_column = 0;  // of the inputs in a row
  std::int64_t channels = 0;
  int taps = 0;

  // The inputs from channel `channel` on that are read at token `token` of a run, oldest first.
  // `zeros` must have as many numbers as the caller reads.
  std::array<const float*, kMaxTaps> taps_at(const SequenceRun& run, const float* before,
                                             std::int64_t channel, std::int64_t token,
                                             const float* zeros) const;
  // Stores the last inputs of `count` channels for the next step; both states may be the same.
  void keep(const SequenceRun& run, const float* before, float* after, std::int64_t channel,
            std::int64_t count) const;

 private:
  const float* at(const SequenceRun& run, const float* before, std::int64_t channel,
                  std::int64_t token) const;
};

// Writes the columns of `mixed` from `column` on, which may be overwritten, to `out`, with the
// codes that their consumer reads. Throws Error with `site` and the first row that is not finite.
void write_rows(const DeltaContext& context, Rows& mixed, std::int64_t column, std::int64_t tokens,
                std::string_view site, const RowsFor& out);

}  // namespace leq::cpu
