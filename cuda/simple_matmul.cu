// Matmuls of every kind in the order of docs/numerics.md, one thread for each output (with SwiGLU
// for each pair).
#include "cuda/code_weight.cuh"
#include "cuda/float_math.cuh"
#include "cuda/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 128;

// Output n of all segments: which segment, and which of its rows.
struct Place {
  int segment;
  std::int64_t row;
};
template <class Arguments>
__device__ Place place_of(const Arguments& a, std::int64_t n) {
  int segment = 0;
  while (segment + 1 < a.segment_count && n >= a.segments[segment].rows) {
    n -= a.segments[segment++].rows;
  }
  return {segment, n};
}

template <class Arguments>
__device__ std::int64_t total_rows(const Arguments& a) {
  std::int64_t rows = 0;
  for (int i = 0; i < a.segment_count; ++i) rows += a.segments[i].rows;
  return rows;
}

// The integer sum of columns [first, first + count), zero points subtracted.
__device__ int group_sum_of(const IntMatmul& a, const CodeWeight& w, std::int64_t row,
                            std::int64_t token, std::int64_t first, std::int64_t count) {
  const std::int8_t* x = a.x.codes + token * a.x.code_stride;
  int sum = 0;
  for (std::int64_t k = first; k < min(first + count, a.columns); ++k) {
    sum += code_number(w, row, k, a.columns) * x[k];
  }
  return sum;
}

__device__ std::int64_t finer_group(const IntMatmul& a) {
  const std::int64_t all = padded_columns(a.columns);
  const std::int64_t of_weight = a.segments[0].weight.group, of_act = a.x.group;
  return min(of_weight == 0 ? all : of_weight, of_act == 0 ? all : of_act);
}

__device__ float output_of(const IntMatmul& a, const Place& place, std::int64_t token) {
  const CodeSegment& segment = a.segments[place.segment];
  const CodeWeight& w = segment.weight;
  const float* scales = a.x.scales + token * a.x.scale_stride;
  const std::int64_t group = finer_group(a);
  const float bias = segment.bias == nullptr ? 0.0f : segment.bias[place.row];
  if (w.group == 0 && a.x.group == 0) {
    const auto sum = static_cast<float>(group_sum_of(a, w, place.row, token, 0, a.columns));
    const float scale = scales[0] * w.row_scales[place.row];
    return segment.bias == nullptr ? sum * scale : fmaf(sum, scale, bias);
  }
  float f = 0;
  for (std::int64_t k = 0; k < a.columns; k += group) {
    const auto sum = static_cast<float>(group_sum_of(a, w, place.row, token, k, group));
    const float of_weight = w.group == 0 ? 1.0f : code_scale(w, place.row, k, a.columns);
    const float of_act = a.x.group == 0 ? 1.0f : scales[k / 128];
    f = fmaf(sum, of_weight * of_act, f);
  }
  if (w.group != 0 && a.x.group != 0) return segment.bias == nullptr ? f : f + bias;
  const float last = w.group != 0 ? scales[0] : w.row_scales[place.row];
  return segment.bias == nullptr ? f * last : fmaf(f, last, bias);
}

// A chain of 16 lanes, k % 16, then lanes +8, +4, +2, +1.
template <class Number>
__device__ float lane_chain(const float* x, std::int64_t columns, Number number) {
  float lanes[16] = {};
  for (std::int64_t k = 0; k < columns; k += 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (k + i < columns) lanes[i] = fmaf(x[k + i], number(k + i), lanes[i]);
    }
  }
#pragma unroll
  for (int width = 8; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

__device__ float output_of(const FloatMatmul& a, const Place& place, std::int64_t token) {
  const FloatSegment& segment = a.segments[place.segment];
  const float y = lane_chain(a.x.values + token * a.x.stride, a.columns, [&](std::int64_t k) {
    return float_number(segment.weight, place.row, k, a.columns);
  });
  return segment.bias == nullptr ? y : y + segment.bias[place.row];
}

__device__ float output_of(const WeightOnlyMatmul& a, const Place& place, std::int64_t token) {
  const CodeSegment& segment = a.segments[place.segment];
  const float y = lane_chain(a.x.values + token * a.x.stride, a.columns, [&](std::int64_t k) {
    return static_cast<float>(code_number(segment.weight, place.row, k, a.columns)) *
           code_scale(segment.weight, place.row, k, a.columns);
  });
  return segment.bias == nullptr ? y : y + segment.bias[place.row];
}

template <class Arguments>
__global__ void __launch_bounds__(kThreads) matmul_outputs(const LEQ_GRID_CONSTANT Arguments a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t token = blockIdx.y;
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool gated = a.finish == Finish::swiglu;
  const std::int64_t outputs = gated ? a.segments[0].rows : total_rows(a);
  if (n >= outputs) return;
  float& out = a.out.values[token * a.out.stride + n];
  const float y = output_of(a, gated ? Place{0, n} : place_of(a, n), token);
  if (gated) {
    out = device_silu(y) * output_of(a, Place{1, n}, token);
  } else if (a.finish == Finish::gelu) {
    out = device_gelu(y);
  } else {
    out = a.finish == Finish::add ? out + y : y;
  }
}

__global__ void __launch_bounds__(kThreads) matmul_integers(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t token = blockIdx.y, outputs = total_rows(a), group = finer_group(a);
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= outputs) return;
  const Place place = place_of(a, n);
  for (std::int64_t g = 0; g * group < padded_columns(a.columns); ++g) {
    a.integers[(g * a.tokens + token) * outputs + n] =
        group_sum_of(a, a.segments[place.segment].weight, place.row, token, g * group, group);
  }
}

template <class Arguments>
void launch(const char* name, const Arguments& a, void (*kernel)(Arguments), rt::Stream& stream) {
  if (a.tokens <= 0) return;
  std::int64_t rows = 0;
  for (int i = 0; i < a.segment_count; ++i) rows += a.segments[i].rows;
  const auto blocks = static_cast<unsigned>((rows + kThreads - 1) / kThreads);
  rt::run(stream, {name, dim3(blocks, static_cast<unsigned>(a.tokens)), dim3(kThreads)}, kernel, a);
}

}  // namespace

void launch_int_matmul(const IntMatmul& a, rt::Stream& stream) {
  if (a.integers != nullptr) return launch("matmul_integers", a, matmul_integers, stream);
  launch("matmul_int", a, matmul_outputs<IntMatmul>, stream);
}

void launch_float_matmul(const FloatMatmul& a, rt::Stream& stream) {
  launch("matmul_float", a, matmul_outputs<FloatMatmul>, stream);
}

void launch_weight_only_matmul(const WeightOnlyMatmul& a, rt::Stream& stream) {
  launch("matmul_weight_only", a, matmul_outputs<WeightOnlyMatmul>, stream);
}

const char* describe_int_matmul(int, std::int64_t) { return "one thread an output"; }
const char* describe_float_matmul() { return "one thread an output"; }

}  // namespace leq::LEQ_GPU
