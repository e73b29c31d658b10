// The way of q, k and v into attention: norms of heads, rotation, q's factor, and the cache's
// pages. One warp for each (token, head), the head in shared memory; sums in the order of
// docs/numerics.md.
#include <cmath>

#include "cuda/kernels/attention/kv_page.cuh"
#include "cuda/kernels/rows/quantize.cuh"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr float kLargestF16 = 65504.0f;

__device__ float clamped(float x) { return fminf(fmaxf(x, -kLargestF16), kLargestF16); }

// The largest f16 that is not above x, and the smallest that is not below x >= 0.
__device__ std::uint16_t half_below(float x) {
  const std::uint16_t nearest = ptx::f32_to_f16(x);
  if (ptx::f16_to_f32(nearest) <= x) return nearest;
  return static_cast<std::uint16_t>((nearest & 0x8000u) != 0 ? nearest + 1 : nearest - 1);
}
__device__ std::uint16_t half_above(float x) {
  const std::uint16_t nearest = ptx::f32_to_f16(x);
  return static_cast<std::uint16_t>(ptx::f16_to_f32(nearest) >= x ? nearest : nearest + 1);
}

__device__ void norm_head(float* x, int dims, const float* gain, float eps, unsigned lane) {
  float squares[8] = {};  // of lanes `lane`, 32 apart
#pragma unroll 1
  for (int first = static_cast<int>(lane); first < dims; first += 256) {
    for (int i = 0; i < 8; ++i) {
      const int k = first + 32 * i;
      if (k < dims) squares[i] = fmaf(x[k], x[k], squares[i]);
    }
  }
  const float r = 1.0f / sqrtf(norm_lanes_sum(squares) / static_cast<float>(dims) + eps);
  for (int k = static_cast<int>(lane); k < dims; k += 32) x[k] = (x[k] * r) * gain[k];
  __syncwarp();
}

// Pairs (i, i + d/2).
__device__ void turn_head(float* x, int dims, const float* table, unsigned lane) {
  const int half = dims / 2;
  for (int i = static_cast<int>(lane); i < half; i += 32) {
    const float c = table[i], s = table[half + i], x0 = x[i], x1 = x[i + half];
    x[i] = fmaf(-x1, s, x0 * c);
    x[i + half] = fmaf(x0, s, x1 * c);
  }
  __syncwarp();
}

// u8 codes with an f16 scale, rounded up, and minimum, rounded down.
__device__ void store_codes(const float* x, int dims, const KvHeadPage& page, int slot,
                            unsigned lane) {
  float low = INFINITY, high = -INFINITY;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    low = fminf(low, clamped(x[c]));
    high = fmaxf(high, clamped(x[c]));
  }
  high = warp_max(high);
  low = -warp_max(-low);
  const std::uint16_t minimum = half_below(low + 0.0f);  // -0 becomes +0
  const float m = ptx::f16_to_f32(minimum);
  const std::uint16_t scale = half_above(((high - m) + 0.0f) / 255.0f);
  const float s = ptx::f16_to_f32(scale);
  auto* codes = reinterpret_cast<std::uint8_t*>(page.numbers + slot * page.row_bytes);
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    const float code = s == 0.0f ? 0.0f : fminf((clamped(x[c]) - m) / s, 255.0f);
    codes[c] = static_cast<std::uint8_t>(__float2int_rn(code));
  }
  if (lane != 0) return;
  page.scales[slot] = scale;
  page.minima[slot] = minimum;
}

__device__ void store_head(const float* x, int dims, KvType type, const KvHeadPage& page, int slot,
                           unsigned lane) {
  if (stored_coded(type)) return store_codes(x, dims, page, slot, lane);
  std::byte* row = page.numbers + slot * page.row_bytes;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    if (type == KvType::f32) {
      reinterpret_cast<float*>(row)[c] = x[c];
    } else {
      reinterpret_cast<std::uint16_t*>(row)[c] = ptx::f32_to_f16(clamped(x[c]));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    rope_append(const LEQ_GRID_CONSTANT RopeAppendArguments a, float query_factor) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, heads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const AttentionHeads& shape = a.heads;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int dims = shape.head_dim, row = static_cast<int>(blockIdx.x);
  const int index = static_cast<int>(blockIdx.y * kWarps + warp);  // of q, then k, then v heads
  if (index >= shape.heads + 2 * shape.kv_heads) return;
  const bool query = index < shape.heads, key = !query && index < shape.heads + shape.kv_heads;

  float* const there = a.qkv.values + row * a.qkv.stride + std::int64_t{index} * dims;
  float* const x = heads + warp * dims;
  unsigned largest = 0;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    x[c] = there[c];
    largest = max(largest, magnitude_bits(x[c]));
  }
  __syncwarp();
  if (warp_max(largest) >= 0x7f800000u) {
    if (lane == 0) report_row(a.fault, row);
    return;
  }
  const AttentionRun& run = a.batch.runs[a.batch.row_runs[row]];
  const int position = run.first_position + row - run.first_row;
  const float* const gain = query ? a.q_gain : key ? a.k_gain : nullptr;
  if (gain != nullptr) norm_head(x, dims, gain, query ? a.q_eps : a.k_eps, lane);
  if (a.table != nullptr && (query || key)) {
    turn_head(x, dims, a.table + std::int64_t{position} * dims, lane);
  }
  if (key && a.key_offset != nullptr) {
    const float* const offset = a.key_offset + (index - shape.heads) * dims;
#pragma unroll 1
    for (int c = static_cast<int>(lane); c < dims; c += 32) x[c] -= offset[c];
    __syncwarp();
  }
  if (query) {
    for (int c = static_cast<int>(lane); c < dims; c += 32) there[c] = x[c] * query_factor;
    return;
  }
  const KvPages& pages = key ? a.keys : a.values;
  const int head = index - shape.heads - (key ? 0 : shape.kv_heads);
  const std::int64_t page = a.batch.pages[run.pages_at + position / kKvPageTokens];
  store_head(x, dims, pages.type, kv_head_page(pages, page, shape, head), position % kKvPageTokens,
             lane);
}

}  // namespace

void launch_rope_append(const RopeAppendArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  const unsigned heads = static_cast<unsigned>(a.heads.heads + 2 * a.heads.kv_heads);
  const auto dims = static_cast<std::size_t>(a.heads.head_dim);
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims)));
  rt::run(
      stream,
      {"rope_append", dim3(static_cast<unsigned>(a.batch.tokens), (heads + kWarps - 1) / kWarps),
       dim3(kThreads), kWarps * dims * sizeof(float), rt::Start::early},
      rope_append, a, factor);
}

}  // namespace leq::LEQ_GPU
