// A short convolution of u = b * x, computed where it is needed. The last row of a sequence also
// stores the last taps - 1 numbers u, oldest first, for the next step.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/delta/delta.cuh"
#include "cuda/kernels/rows/output_codes.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kConvThreads = 128;  // columns that share a scale of codes

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

__device__ __forceinline__ void convolve(const ShortConvArguments& a, std::int64_t row,
                                         std::int64_t channel) {
  const int run = a.batch.row_runs[row];
  const std::int64_t token = row - a.batch.runs[run].first_row, first = token - (a.taps - 1);
  float* const kept = written_state(a.batch.runs[run], token, a.state_at);
  float sum = a.conv[channel] * input_at(a, run, first, channel);
#pragma unroll 1
  for (int tap = 1; tap < a.taps; ++tap) {
    const float input = input_at(a, run, first + tap, channel);
    sum = fmaf(a.conv[tap * a.conv_stride + channel], input, sum);
    if (kept != nullptr) kept[(tap - 1) * a.channels + channel] = input;
  }
  const float out = sum * a.mixed.values[row * a.mixed.stride + a.channels + channel];
  // An input that is not finite would never leave the state; it always makes an output like it.
  if (magnitude_bits(out) >= 0x7f800000u) report_row(a.fault, row);
  a.out.values[row * a.out.stride + channel] = out;
}

// For each (row, channel).
__global__ void __launch_bounds__(kConvThreads)
    short_conv(const LEQ_GRID_CONSTANT ShortConvArguments a) {
  LEQ_BOUNDS(kConvThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t row = blockIdx.x, first = std::int64_t{blockIdx.y} * kConvThreads;
  if (first + threadIdx.x < a.channels) convolve(a, row, first + threadIdx.x);
  __syncthreads();
  if (!a.codes.exist() || threadIdx.x >= 32) return;
  quantize_outputs(a.codes, a.out, row, first, a.channels);
}

}  // namespace

void launch_short_conv(const ShortConvArguments& a, rt::Stream& stream) {
  const dim3 blocks = rt::grid(a.batch.tokens, div_up(a.channels, kConvThreads));
  rt::run(stream, {"short_conv", blocks, kConvThreads, 0, rt::Start::early}, short_conv, a);
}

}  // namespace leq::LEQ_GPU
