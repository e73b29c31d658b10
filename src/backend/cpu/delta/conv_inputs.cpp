#include "backend/cpu/delta/conv_inputs.h"

#include <algorithm>
#include <cstring>

namespace leq::cpu {

std::vector<std::vector<SequenceRun>> chains_of(const BatchView& batch) {
  std::vector<std::vector<SequenceRun>> chains;
  for (const SequenceRun& run : batch.runs) {
    const auto same = std::ranges::find_if(chains, [&](const std::vector<SequenceRun>& one) {
      return one[0].state_to == run.state_to;
    });
    if (same == chains.end()) {
      chains.push_back({run});
    } else {
      same->push_back(run);
    }
  }
  return chains;
}

const float* ConvInputs::at(const SequenceRun& run, const float* before, std::int64_t channel,
                            std::int64_t token) const {
  if (token >= 0) {
    return rows.values + (run.first_row + token) * rows.value_stride + first_column + channel;
  }
  return before == nullptr ? nullptr : before + (taps - 1 + token) * channels + channel;
}

std::array<const float*, kMaxTaps> ConvInputs::taps_at(const SequenceRun& run, const float* before,
                                                       std::int64_t channel, std::int64_t token,
                                                       const float* zeros) const {
  std::array<const float*, kMaxTaps> inputs = {};
  for (int tap = 0; tap < taps; ++tap) {
    const float* input = at(run, before, channel, token - (taps - 1) + tap);
    inputs[static_cast<std::size_t>(tap)] = input != nullptr ? input : zeros;
  }
  return inputs;
}

// The order is ascending, because in a short run some inputs are moved to lower addresses in place.
void ConvInputs::keep(const SequenceRun& run, const float* before, float* after,
                      std::int64_t channel, std::int64_t count) const {
  for (std::int64_t i = 0; i < taps - 1; ++i) {
    const float* input = at(run, before, channel, run.rows - (taps - 1) + i);
    float* out = after + i * channels + channel;
    if (input == nullptr) {
      std::fill_n(out, count, 0.0f);
    } else {
      std::memmove(out, input, static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

void write_rows(const DeltaContext& context, Rows& mixed, std::int64_t column, std::int64_t tokens,
                std::string_view site, const RowsFor& out) {
  constexpr std::int64_t kRowsPerTask = 4;
  const Rows& rows = out.rows;
  const QuantizedUnit unit = quantized_unit(rows.format);
  FirstBadRow bad;
  const std::int64_t tasks = (tokens + kRowsPerTask - 1) / kRowsPerTask;
  run_tasks(context.pool, tasks, tokens * mixed.width, [&](std::int64_t task, int) {
    const std::int64_t last = std::min((task + 1) * kRowsPerTask, tokens);
    for (std::int64_t t = task * kRowsPerTask; t < last; ++t) {
      float* x = mixed.values + t * mixed.value_stride + column;
      const float* factors = out.consumer.inv_smooth;
      if (factors != nullptr) context.rows.multiply(factors, rows.width, x);
      if (rows.values != nullptr) std::copy_n(x, rows.width, rows.values + t * rows.value_stride);
      if (unit == QuantizedUnit::nothing || unit == QuantizedUnit::rows) continue;
      if (!quantize_columns(context.rows, x, t, 0, rows.width, out)) bad.report(t);
    }
  });
  bad.check(site);
  if (unit == QuantizedUnit::rows) quantize_step(context.pool, context.rows, tokens, site, out);
}

}  // namespace leq::cpu
