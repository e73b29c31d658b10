// A short convolution has two launches: the outputs, and each sequence's last inputs, which its
// next step needs. Both compute u = b * x where they need it.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/delta/delta.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kConvThreads = 128;

__device__ __forceinline__ float input_at(const ShortConvArguments& a, int run, std::int64_t token,
                                          std::int64_t channel) {
  return conv_input(
      a.batch, run, token, a.state_at,
      [&](std::int64_t row) {
        const float* const b = a.mixed.values + row * a.mixed.stride + channel;
        return b[2 * a.channels] * b[0];
      },
      [&](const float* from, std::int64_t i) {
        return from[(a.taps - 1 + i) * a.channels + channel];
      });
}

// For each (row, channel).
__global__ void __launch_bounds__(kConvThreads)
    short_conv(const LEQ_GRID_CONSTANT ShortConvArguments a) {
  LEQ_BOUNDS(kConvThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t row = blockIdx.x;
  const std::int64_t channel = std::int64_t{blockIdx.y} * kConvThreads + threadIdx.x;
  if (channel >= a.channels) return;
  const int run = a.batch.row_runs[row];
  const std::int64_t first = row - a.batch.runs[run].first_row - (a.taps - 1);
  float sum = a.conv[channel] * input_at(a, run, first, channel);
#pragma unroll 1
  for (int tap = 1; tap < a.taps; ++tap) {
    sum = fmaf(a.conv[tap * a.conv_stride + channel], input_at(a, run, first + tap, channel), sum);
  }
  const float out = sum * a.mixed.values[row * a.mixed.stride + a.channels + channel];
  // An input that is not finite would never leave the state; it always makes an output like it.
  if (magnitude_bits(out) >= 0x7f800000u) report_row(a.fault, row);
  a.out.values[row * a.out.stride + channel] = out;
}

// Writes the last taps - 1 inputs of each sequence to its state, oldest first; the block of its
// last run does so. In this order the source and the target may be the same state.
__global__ void __launch_bounds__(kConvThreads)
    short_conv_keep(const LEQ_GRID_CONSTANT ShortConvArguments a) {
  LEQ_BOUNDS(kConvThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const int run = static_cast<int>(blockIdx.x);
  const std::int64_t channel = std::int64_t{blockIdx.y} * kConvThreads + threadIdx.x;
  const AttentionRun& of = a.batch.runs[run];
  if (of.next_run >= 0 || channel >= a.channels) return;
  float* const to = state_part(a.state_at, of.state_to) + channel;
  for (int i = 0; i < a.taps - 1; ++i) {
    to[i * a.channels] = input_at(a, run, of.rows - (a.taps - 1) + i, channel);
  }
}

}  // namespace

void launch_short_conv(const ShortConvArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0 || a.channels == 0) return;  // all channels are on other ranks
  const auto blocks = static_cast<unsigned>((a.channels + kConvThreads - 1) / kConvThreads);
  rt::run(stream,
          {"short_conv", dim3(static_cast<unsigned>(a.batch.tokens), blocks), dim3(kConvThreads), 0,
           rt::Start::early},
          short_conv, a);
  rt::run(stream,
          {"short_conv_keep", dim3(static_cast<unsigned>(a.batch.run_count), blocks),
           dim3(kConvThreads), 0, rt::Start::early},
          short_conv_keep, a);
}

}  // namespace leq::LEQ_GPU
