// Gated DeltaNet has three launches: the inputs of the recurrence for each token, the recurrence,
// and the outputs.
#include <algorithm>

#include "backend/operations.h"
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/delta/delta.cuh"
#include "cuda/kernels/rows/head_norm.cuh"
#include "cuda/kernels/rows/output_codes.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kHeadWarps = 4, kHeadThreads = 32 * kHeadWarps;

__device__ __forceinline__ std::int64_t recurrent_numbers(const DeltaArguments& a) {
  return a.key_dim * a.values();
}

// A layer's part of a state: S, followed by the last inputs.
__device__ __forceinline__ float input_at(const DeltaArguments& a, int run, std::int64_t token,
                                          std::int64_t channel) {
  return conv_input(
      a.batch, run, token, a.state_at,
      [&](std::int64_t row) { return a.mixed.values[row * a.mixed.stride + channel]; },
      [&](const float* from, std::int64_t i) {
        return from[recurrent_numbers(a) + (a.taps - 1 + i) * a.channels() + channel];
      });
}

// Returns ln(1 + e^x), where ln uses the series of base/fixed_log.h.
__device__ float softplus(float x) {
  if (x > 20.0f) return x;
  const double y = 1.0 + static_cast<double>(device_exp(x));
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(y));
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __longlong_as_double(
      static_cast<long long>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 23;
  for (int k = 21; k >= 1; k -= 2) sum = fma(sum, square, 1.0 / k);
  const double log2 = static_cast<double>(exponent) + 0x1.71547652b82fep+1 * (s * sum);
  return static_cast<float>(log2 * 0x1.62e42fefa39efp-1);
}

// Computes alpha and beta of a value head.
__device__ void open_gates(const DeltaArguments& a, std::int64_t row, int head) {
  const float* const gates = a.gates.values + row * a.gates.stride;
  const float b = gates[head], x = gates[a.gate_stride + head];
  if (magnitude_bits(b) >= 0x7f800000u || magnitude_bits(x) >= 0x7f800000u) {
    report_row(a.fault, row);
  }
  float* const out = a.gates_of(row);
  out[head] = device_exp(-(device_exp(a.a_log[head]) * softplus(x + a.dt_bias[head])));
  out[a.value_heads + head] = 1.0f / (1.0f + device_exp(-b));
}

// One head of one row; a warp processes it with the head's numbers in shared memory.
struct WarpHead {
  unsigned lane;
  int index;
  std::int64_t row;
  float* x;

  __device__ __forceinline__ WarpHead(const DeltaArguments& a, float* heads)
      : lane(threadIdx.x % 32),
        index(static_cast<int>(blockIdx.y * kHeadWarps + threadIdx.x / 32)),
        row(blockIdx.x),
        x(heads + threadIdx.x / 32 * static_cast<unsigned>(max(a.key_dim, a.value_dim))) {}
};

// For each (token, head of q, k or v): convolution and SiLU; norms of q and k; gates of v heads.
// The last token of a sequence also stores the last taps - 1 inputs, oldest first.
__global__ void __launch_bounds__(kHeadThreads)
    delta_inputs(const LEQ_GRID_CONSTANT DeltaArguments a) {
  LEQ_BOUNDS(kHeadThreads);
  LEQ_DYNAMIC_SHARED(float, heads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const auto [lane, index, row, x] = WarpHead(a, heads);
  if (index >= 2 * a.key_heads + a.value_heads) return;
  const int part = min(index / a.key_heads, 2), head = index - part * a.key_heads;  // q, k, v
  const bool value = part == 2;
  const int dims = value ? a.value_dim : a.key_dim;
  const std::int64_t at = std::int64_t{head} * dims, first = part * a.keys() + at;
  const float* const conv = a.conv[part] + at;
  const int run = a.batch.row_runs[row];
  const std::int64_t token = row - a.batch.runs[run].first_row;
  float* const state = written_state(a.batch.runs[run], token, a.state_at);
  float* const kept = state == nullptr ? nullptr : state + recurrent_numbers(a);
  unsigned largest = 0;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    const std::int64_t channel = first + c;
    float sum = conv[c] * input_at(a, run, token - (a.taps - 1), channel);
#pragma unroll 1
    for (int tap = 1; tap < a.taps; ++tap) {
      const float input = input_at(a, run, token - (a.taps - 1) + tap, channel);
      sum = fmaf(conv[tap * a.conv_stride + c], input, sum);
      if (kept != nullptr) kept[(tap - 1) * a.channels() + channel] = input;
    }
    largest = max(largest, magnitude_bits(a.mixed.values[row * a.mixed.stride + channel]));
    x[c] = device_silu(sum);
  }
  __syncwarp();
  if (warp_max(largest) >= 0x7f800000u && lane == 0) report_row(a.fault, row);
  if (!value) {
    const float gain = part == 0 ? a.query_gain : a.key_gain;
    norm_head(x, dims, a.l2_eps, lane, [&](int) { return gain; });
  } else if (lane == 0) {
    open_gates(a, row, head);
  }
  float* const out = a.convolved(row) + first;
  for (int c = static_cast<int>(lane); c < dims; c += 32) out[c] = x[c];
}

// One warp per (sequence, value head, eight columns of S).
__global__ void __launch_bounds__(32) delta_recur(const LEQ_GRID_CONSTANT DeltaArguments a) {
  LEQ_BOUNDS(32);
  LEQ_SHARED(DeltaRow, of_warp);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const AttentionRun* run = a.batch.runs + blockIdx.x;
  if (run->previous_run >= 0) return;
  const int parts = (a.value_dim + DeltaColumn::kOfWarp - 1) / DeltaColumn::kOfWarp;
  const auto part = static_cast<int>(blockIdx.y);
  const DeltaPlace place(a, part / parts, part % parts * DeltaColumn::kOfWarp);
  DeltaColumn state;
  load_state(a, *run, place, state);
  for (;;) {
    recur_rows(a, place, state, run->first_row, run->rows, of_warp);
    if (run->next_run < 0) break;
    run = a.batch.runs + run->next_run;
  }
  store_state(a, *run, place, state);
}

// Computes out = rms_norm(o) * silu(z) for each (token, value head).
__global__ void __launch_bounds__(kHeadThreads)
    delta_outputs(const LEQ_GRID_CONSTANT DeltaArguments a) {
  LEQ_BOUNDS(kHeadThreads);
  LEQ_DYNAMIC_SHARED(float, heads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const auto [lane, head, row, x] = WarpHead(a, heads);
  if (head >= a.value_heads) return;
  const std::int64_t first = std::int64_t{head} * a.value_dim;
  const float* const o = a.convolved(row) + 2 * a.keys() + first;
  for (int c = static_cast<int>(lane); c < a.value_dim; c += 32) x[c] = o[c];
  __syncwarp();
  norm_head(x, a.value_dim, a.norm_eps, lane, [&](int c) { return a.norm_gain[c]; });
  const float* const z = a.mixed.values + row * a.mixed.stride + a.channels() + first;
  float* const out = a.out.values + row * a.out.stride + first;
  unsigned largest = 0;
  for (int c = static_cast<int>(lane); c < a.value_dim; c += 32) {
    largest = max(largest, magnitude_bits(z[c]));
    out[c] = device_silu(z[c]) * x[c];
  }
  if (warp_max(largest) >= 0x7f800000u && lane == 0) report_row(a.fault, row);
  if (!a.codes.exist()) return;
  __syncwarp();
  for (int c = 0; c < a.value_dim; c += 128) {
    quantize_outputs(a.codes, a.out, row, first + c, a.values());
  }
}

}  // namespace

void launch_delta_net(const DeltaArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0 || a.value_heads == 0) return;  // all heads are on other ranks
  const std::int64_t heads = 2 * a.key_heads + a.value_heads, runs = a.batch.run_count;
  const auto head_bytes =
      static_cast<std::size_t>(std::max(a.key_dim, a.value_dim)) * kHeadWarps * sizeof(float);
  rt::run(stream,
          {"delta_inputs", rt::grid(a.batch.tokens, div_up(heads, kHeadWarps)), kHeadThreads,
           head_bytes, rt::Start::early},
          delta_inputs, a);
  if (has_delta_chunks(a)) {
    launch_delta_chunks(a, stream);
  } else {
    const std::int64_t parts = div_up(a.value_dim, DeltaColumn::kOfWarp);
    rt::run(stream, {"delta_recur", rt::grid(runs, a.value_heads * parts), 32, 0, rt::Start::early},
            delta_recur, a);
  }
  rt::run(stream,
          {"delta_outputs", rt::grid(a.batch.tokens, div_up(a.value_heads, kHeadWarps)),
           kHeadThreads, head_bytes, rt::Start::early},
          delta_outputs, a);
}

}  // namespace leq::LEQ_GPU
