#include <algorithm>
#include <cmath>

#include "backend/cpu/delta/conv_inputs.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kBlock = 128;  // channels of a task

// A block of channels of one run. In `mixed`, u replaces x, and the outputs replace b.
void one_block(const DeltaContext& context, Rows& mixed, const SequenceRun& run,
               const ShortConvShape& shape, std::int64_t first, FirstBadRow& bad) {
  constexpr float kZeros[kBlock] = {};
  const std::int64_t count = std::min(kBlock, shape.channels - first);
  const auto* from = run.state_from == nullptr
                         ? nullptr
                         : reinterpret_cast<const float*>(run.state_from + shape.state_at);
  auto* to = reinterpret_cast<float*>(run.state_to + shape.state_at);
  const ConvInputs inputs = {mixed, 2 * shape.channels, shape.channels, shape.taps};
  for (std::int64_t token = 0; token < run.rows; ++token) {
    const std::int64_t row = run.first_row + token;
    float* const b = mixed.values + row * mixed.value_stride + first;
    context.rows.multiply(b, count, b + 2 * shape.channels);
    const auto taps = inputs.taps_at(run, from, first, token, kZeros);
    context.kernels.convolve(taps.data(), shape.conv + first, shape.conv_stride, shape.taps, false,
                             count, b);
    context.rows.multiply(b + shape.channels, count, b);
    // An input that is not finite would never leave the state; it always makes an output like it.
    if (!std::isfinite(context.rows.absmax(b, count))) bad.report(row);
  }
  inputs.keep(run, from, to, first, count);
}

}  // namespace

void short_conv(const DeltaContext& context, Rows& mixed, const BatchView& batch,
                const ShortConvShape& shape, const RowsFor& out) {
  ensure(shape.taps <= kMaxTaps, "short convolution: ", shape.taps, " taps");
  if (shape.channels == 0) return;
  const auto chains = chains_of(batch);
  const std::int64_t blocks = (shape.channels + kBlock - 1) / kBlock;
  FirstBadRow bad;
  run_tasks(context.pool, std::ssize(chains) * blocks, batch.tokens * mixed.width,
            [&](std::int64_t task, int) {
              for (const SequenceRun& run : chains[static_cast<std::size_t>(task / blocks)]) {
                one_block(context, mixed, run, shape, task % blocks * kBlock, bad);
              }
            });
  bad.check("input of the short convolution");
  write_rows(context, mixed, 0, batch.tokens, "output of the short convolution", out);
}

}  // namespace leq::cpu
