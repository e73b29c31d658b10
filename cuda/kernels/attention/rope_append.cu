// Prepares q, k and v for attention: norms of heads, rotation, the factor of q, and writing k and v
// to the cache's pages. One warp processes each (token, head), with the head in shared memory; sums
// have the order of docs/numerics.md.
#include <cmath>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/attention/kv_encode.cuh"
#include "cuda/kernels/attention/kv_packed.cuh"
#include "cuda/kernels/rows/head_norm.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Rotates the pairs (i, i + r/2) of the first r numbers.
__device__ void rope_head(float* x, int dims, const float* table, unsigned lane) {
  const int half = dims / 2;
  for (int i = static_cast<int>(lane); i < half; i += 32) {
    const float c = table[i], s = table[half + i], x0 = x[i], x1 = x[i + half];
    x[i] = fmaf(-x1, s, x0 * c);
    x[i + half] = fmaf(x0, s, x1 * c);
  }
  __syncwarp();
}

// Encodes and stores a head as u8 codes.
__device__ void store_codes(const float* x, int dims, const KvHeadPage& page, int slot,
                            unsigned lane) {
  float low = INFINITY, high = -INFINITY;
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    low = fminf(low, clamped(x[c]));
    high = fmaxf(high, clamped(x[c]));
  }
  const CodeRange range = warp_range(low, high, 255.0f);
  auto* codes = reinterpret_cast<std::uint8_t*>(page.numbers + slot * page.row_bytes);
  for (int c = static_cast<int>(lane); c < dims; c += 32) {
    codes[c] = static_cast<std::uint8_t>(range.code(x[c], 255.0f));
  }
  if (lane != 0) return;
  page.scales[slot] = range.scale;
  page.minima[slot] = range.minimum;
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

// Writes a position's numbers to its page, or to the page's f16 copy if codes are encoded per
// block.
__device__ void append_head(const RopeAppendArguments& a, const float* x, KvPart part, int head,
                            const AttentionRun& run, int position, unsigned lane) {
  const KvPages& pages = part == KvPart::keys ? a.keys : a.values;
  const int dims = a.heads.head_dim, slot = position % kKvPageTokens;
  const int page = a.batch.pages[run.pages_at + position / kKvPageTokens];
  if (!pages.codes.packed()) {
    store_head(x, dims, pages.type, kv_head_page(pages, page, a.heads, head), slot, lane);
  } else {
    const KvPages& copies = part == KvPart::keys ? a.copied.keys : a.copied.values;
    const int copy = a.batch.pages[run.copies_at + position / kKvPageTokens];
    store_head(x, dims, copies.type, kv_head_page(copies, copy, a.heads, head), slot, lane);
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
  const int index = static_cast<int>(blockIdx.y * kWarps + warp);  // among q, k and v heads
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
  if (gain != nullptr) {
    norm_head(x, dims, query ? a.q_eps : a.k_eps, lane, [&](int k) { return gain[k]; });
  }
  if (a.table != nullptr && (query || key)) {
    rope_head(x, a.rotary_dims, a.table + std::int64_t{position} * a.rotary_dims, lane);
  }
  if (key && a.key_offset != nullptr) {
    const float* const offset = a.key_offset + (index - shape.heads) * dims;
#pragma unroll 1
    for (int c = static_cast<int>(lane); c < dims; c += 32) x[c] -= offset[c];
    __syncwarp();
  }
  if (query) {
    const float factor =
        a.query_factors != nullptr ? a.query_factors[position / a.query_period] : query_factor;
    for (int c = static_cast<int>(lane); c < dims; c += 32) x[c] = x[c] * factor;
    __syncwarp();
  }
  if (query) {
    for (int c = static_cast<int>(lane); c < dims; c += 32) there[c] = x[c];
    return;
  }
  const int head = index - shape.heads - (key ? 0 : shape.kv_heads);
  append_head(a, x, key ? KvPart::keys : KvPart::values, head, run, position, lane);
}

}  // namespace

void launch_rope_append(const RopeAppendArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  const unsigned heads = static_cast<unsigned>(a.heads.heads + 2 * a.heads.kv_heads);
  const auto dims = static_cast<std::size_t>(a.heads.head_dim);
  const float root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims)));
  const float factor = a.query_scale != 0 ? a.query_scale : root;
  rt::run(
      stream,
      {"rope_append", dim3(static_cast<unsigned>(a.batch.tokens), (heads + kWarps - 1) / kWarps),
       dim3(kThreads), kWarps * dims * sizeof(float), rt::Start::early},
      rope_append, a, factor);
}

}  // namespace leq::LEQ_GPU
