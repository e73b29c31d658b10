// Attention in the order of docs/numerics.md, for any head size, type, group and window: one block
// of 32 threads for each (row, head), spans of 512 positions in ascending order.
#include "cuda/float_math.cuh"
#include "cuda/kv_page.cuh"
#include "cuda/quantize.cuh"
#include "cuda/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kSpan = 512;

struct Row {
  const AttentionArguments& a;
  const float* query;  // [d]
  const std::int32_t* pages;
  int kv_head;
  // int8 keys: q in codes.
  float code_scale = 1, code_inverse = 0, code_sum = 0;
};

__device__ KvHeadPage page_of(const Row& row, const KvPages& pages, int position) {
  return kv_head_page(pages, row.pages[position / kKvPageTokens], row.a.heads, row.kv_head);
}

__device__ float score(const Row& row, int position) {
  const KvNumbers type = row.a.keys.type;
  const KvHeadPage page = page_of(row, row.a.keys, position);
  const int slot = position % kKvPageTokens, dims = row.a.heads.head_dim;
  if (type != KvNumbers::int8) {
    float sum = 0;
    for (int c = 0; c < dims; ++c) sum = fmaf(row.query[c], kv_number(page, type, slot, c), sum);
    return sum;
  }
  int sum = 0;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(page.numbers + slot * page.row_bytes);
  for (int c = 0; c < dims; ++c) sum += codes[c] * code_of(row.query[c], row.code_inverse);
  const float low = ptx::f16_to_f32(page.minima[slot]) * row.code_sum;
  return row.code_scale * fmaf(ptx::f16_to_f32(page.scales[slot]), static_cast<float>(sum), low);
}

__device__ void quantize_query(Row& row, unsigned lane) {
  unsigned largest = 0;
  const int dims = row.a.heads.head_dim;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    largest = max(largest, magnitude_bits(row.query[c]));
  }
  const StepSize step = step_size(warp_max(largest));
  int sum = 0;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    sum += code_of(row.query[c], step.inverse);
  }
  row.code_scale = step.scale;
  row.code_inverse = step.inverse;
  row.code_sum = static_cast<float>(warp_sum(sum));
}

// A sum whose lane is position % 16 in each of the lanes 0..15.
__device__ float lane_total(float lane_sum) {
  for (int step = 8; step > 0; step /= 2) lane_sum += __shfl_xor_sync(kEveryLane, lane_sum, step);
  return __shfl_sync(kEveryLane, lane_sum, 0);
}

// One span [first, last): weights of the values in p, and m, l and z of the order.
struct SpanResult {
  float m, l, z;
};
__device__ SpanResult span_weights(const Row& row, int first, int last, float* p, unsigned lane) {
  const int begin = first / kSpan * kSpan;
  float m = -INFINITY;
  for (int j = first + static_cast<int>(lane); j < last; j += 32) {
    p[j - begin] = score(row, j);
    m = fmaxf(m, p[j - begin]);
  }
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(kEveryLane, m, step));
  float l = 0, z = 0;
  for (int j = begin + static_cast<int>(lane); lane < 16 && j < last; j += 16) {
    if (j < first) continue;
    p[j - begin] = device_exp(p[j - begin] - m);
    l += p[j - begin];
    if (row.a.values.type != KvNumbers::int8) continue;
    const KvHeadPage page = page_of(row, row.a.values, j);
    z = fmaf(p[j - begin], ptx::f16_to_f32(page.minima[j % kKvPageTokens]), z);
    p[j - begin] = p[j - begin] * ptx::f16_to_f32(page.scales[j % kKvPageTokens]);
  }
  __syncwarp();
  return {m, lane_total(l), lane_total(z)};
}

__device__ float weighted_value(const Row& row, int first, int last, const float* p, int c) {
  float o = 0;
  for (int j = first; j < last; ++j) {
    const KvHeadPage page = page_of(row, row.a.values, j);
    o = fmaf(p[j - first / kSpan * kSpan], kv_number(page, row.a.values.type, j % kKvPageTokens, c),
             o);
  }
  return o;
}

__global__ void __launch_bounds__(32) attention_rows(const LEQ_GRID_CONSTANT AttentionArguments a) {
  LEQ_BOUNDS(32);
  LEQ_SHARED(float[kSpan], p);
  LEQ_DYNAMIC_SHARED(float, out);  // [d]
  const unsigned lane = threadIdx.x;
  const int row_index = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int dims = a.heads.head_dim;
  const AttentionRun& run = a.batch.runs[a.batch.row_runs[row_index]];
  const int position = run.first_position + row_index - run.first_row;
  Row row = {a, a.qkv.values + row_index * a.qkv.stride + std::int64_t{head} * dims,
             a.batch.pages + run.pages_at, head / (a.heads.heads / a.heads.kv_heads)};
  if (a.keys.type == KvNumbers::int8) quantize_query(row, lane);
  const int begin = a.heads.window > 0 ? max(0, position - a.heads.window + 1) : 0;
  float m = 0, l = 0;
  bool started = false;
  for (int first = begin; first <= position; first = first / kSpan * kSpan + kSpan) {
    const int last = min(first / kSpan * kSpan + kSpan, position + 1);
    const SpanResult span = span_weights(row, first, last, p, lane);
    const float top = started ? fmaxf(m, span.m) : span.m;
    const float old = started ? device_exp(m - top) : 0.0f, fresh = device_exp(span.m - top);
    for (int c = static_cast<int>(lane); c < dims; c += 32) {
      const float o = weighted_value(row, first, last, p, c) + span.z;
      out[c] = started ? fmaf(o, fresh, out[c] * old) : o;
    }
    l = started ? fmaf(span.l, fresh, l * old) : span.l;
    m = top;
    started = true;
    __syncwarp();
  }
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    a.out.values[row_index * a.out.stride + std::int64_t{head} * dims + c] = out[c] * (1.0f / l);
  }
}

}  // namespace

void launch_attention(const AttentionArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  rt::run(stream,
          {"attention_rows",
           dim3(static_cast<unsigned>(a.batch.tokens), static_cast<unsigned>(a.heads.heads)),
           dim3(32), static_cast<std::size_t>(a.heads.head_dim) * sizeof(float)},
          attention_rows, a);
}

std::size_t attention_scratch_bytes(std::int64_t, const AttentionHeads&, std::int64_t) { return 0; }

}  // namespace leq::LEQ_GPU
