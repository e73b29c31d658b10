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

// Numbers between heads in shared memory, so that each begins at a vector.
__device__ __host__ constexpr int head_stride(int dims) { return (dims + 3) / 4 * 4; }

// The angles by which a lane rotates, loaded before the head arrives: cosines and sines of the
// pairs lane + 32 i, of which the first kHeld are in registers.
struct Angles {
  static constexpr int kHeld = 4;
  const float* table;
  int half;
  float cosines[kHeld], sines[kHeld];

  __device__ __forceinline__ Angles(const float* row, int dims, unsigned lane)
      : table(row), half(dims / 2) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int pair = static_cast<int>(lane) + 32 * i;
      cosines[i] = pair < half ? table[pair] : 0.0f;
      sines[i] = pair < half ? table[half + pair] : 0.0f;
    }
  }
  // Rotates the pairs (i, i + half).
  __device__ __forceinline__ void rotate(float* x, unsigned lane) const {
    const auto turn = [&](float c, float s, int i) {
      const float x0 = x[i], x1 = x[i + half];
      x[i] = fmaf(-x1, s, x0 * c);
      x[i + half] = fmaf(x0, s, x1 * c);
    };
    const int first = static_cast<int>(lane);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (first + 32 * i < half) turn(cosines[i], sines[i], first + 32 * i);
    }
#pragma unroll 1
    for (int i = first + 32 * kHeld; i < half; i += 32) {
      turn(table[i], table[half + i], i);
    }
    __syncwarp();
  }
};

// Calls body(c, quad) for a lane's quads of a head.
template <class Body>
__device__ __forceinline__ void for_quads(const float* x, int dims, unsigned lane, Body body) {
#pragma unroll 1
  for (int c = static_cast<int>(lane) * 4; c < dims; c += 128) body(c, load_quad(x, c, dims));
}

// Stores numbers c ... c + 3 of a head, each as `Number`, as one word if there are four.
template <class Number>
__device__ __forceinline__ void store_numbers(std::byte* row, int c, int dims,
                                              const Number (&numbers)[4]) {
  struct alignas(4 * sizeof(Number)) Four {
    Number of[4];
  };
  auto* const to = reinterpret_cast<Number*>(row) + c;
  if (c + 4 <= dims) {
    *reinterpret_cast<Four*>(to) = {{numbers[0], numbers[1], numbers[2], numbers[3]}};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i < dims) to[i] = numbers[i];
  }
}

// Encodes and stores a head as u8 codes.
__device__ __forceinline__ void store_codes(const float* x, int dims, const KvHeadPage& page,
                                            int slot, unsigned lane) {
  float low = INFINITY, high = -INFINITY;
  for_quads(x, dims, lane, [&](int c, const Quad& quad) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (c + i >= dims) continue;
      low = fminf(low, clamped(quad.x[i]));
      high = fmaxf(high, clamped(quad.x[i]));
    }
  });
  const CodeRange range = warp_range(low, high, 255.0f);
  for_quads(x, dims, lane, [&](int c, const Quad& quad) {
    std::uint8_t codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      codes[i] = static_cast<std::uint8_t>(range.code(quad.x[i], 255.0f));
    }
    store_numbers(page.numbers + slot * page.row_bytes, c, dims, codes);
  });
  if (lane != 0) return;
  page.scales[slot] = range.scale;
  page.minima[slot] = range.minimum;
}

__device__ __forceinline__ void store_head(const float* x, int dims, KvType type,
                                           const KvHeadPage& page, int slot, unsigned lane) {
  if (stored_coded(type)) return store_codes(x, dims, page, slot, lane);
  for_quads(x, dims, lane, [&](int c, const Quad& quad) {
    std::byte* const row = page.numbers + slot * page.row_bytes;
    if (type == KvType::f32) return store_numbers(row, c, dims, quad.x);
    std::uint16_t halves[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) halves[i] = ptx::f32_to_f16(clamped(quad.x[i]));
    store_numbers(row, c, dims, halves);
  });
}

// One chain of loads decides how long this kernel takes for one row: run, then angles and page. The
// numbers of the head are loaded meanwhile.
__global__ void __launch_bounds__(kThreads)
    rope_append(const LEQ_GRID_CONSTANT RopeAppendArguments a, float query_factor) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, heads);
  ptx::let_successor_start();
  const AttentionHeads& shape = a.heads;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int dims = shape.head_dim, row = static_cast<int>(blockIdx.x);
  const int index = static_cast<int>(blockIdx.y * kWarps + warp);  // among q, k and v heads
  const bool query = index < shape.heads, key = !query && index < shape.heads + shape.kv_heads;
  const float* const gain = query ? a.q_gain : key ? a.k_gain : a.v_gain;
  const int stride = head_stride(dims);
  float* const x = heads + warp * 2 * stride;
  float* const gains = x + stride;
  if (gain != nullptr) {
    for_quads(gain, dims, lane, [&](int c, const Quad& quad) { store_quad(gains, c, dims, quad); });
  }
  ptx::wait_for_predecessor();
  if (index >= shape.heads + (a.queries_only ? 0 : 2 * shape.kv_heads)) return;
  float* const there = a.qkv.values + row * a.qkv.stride + std::int64_t{index} * dims;
  Quad next = load_quad(there, static_cast<int>(lane) * 4, dims);
  // If all runs have one row, the row's number is its run's.
  const bool single = a.batch.single_runs == a.batch.tokens;
  const AttentionRun& run = a.batch.runs[single ? row : a.batch.row_runs[row]];
  const int position = run.first_position + row - run.first_row;
  const KvPages& pages = key ? a.keys : a.values;
  const bool copied = !query && pages.codes.packed();
  // Where codes are encoded per block, a position's numbers are written to the page's f16 copy.
  const int pages_at = copied ? run.copies_at : run.pages_at;
  const bool rotates = a.table != nullptr && (query || key);
  const Angles angles(rotates ? a.table + std::int64_t{position} * a.rotary_dims : nullptr,
                      rotates ? a.rotary_dims : 0, lane);
  const int page = query ? 0 : a.batch.pages[pages_at + position / kKvPageTokens];
  unsigned largest = 0;
  for (int c = static_cast<int>(lane) * 4; c < dims; c += 128) {
    store_quad(x, c, dims, next);
    largest = max(largest, absmax_of(next));
    next = load_quad(there, c + 128, dims);
  }
  __syncwarp();
  if (warp_max(largest) >= 0x7f800000u) {
    if (lane == 0) report_row(a.fault, row);
    return;
  }
  if (gain != nullptr) {
    const float eps = query ? a.q_eps : key ? a.k_eps : a.v_eps;
    norm_head(x, dims, eps, lane, [&](int k) { return gains[k]; });
  }
  if (rotates) angles.rotate(x, lane);
  if (query) {
    const float factor =
        a.query_factors != nullptr ? a.query_factors[position / a.query_period] : query_factor;
    for_quads(x, dims, lane, [&](int c, Quad quad) {
#pragma unroll
      for (int i = 0; i < 4; ++i) quad.x[i] = quad.x[i] * factor;
      store_quad(there, c, dims, quad);
    });
    return;
  }
  if (key && a.key_offset != nullptr) {
    const float* const offset = a.key_offset + (index - shape.heads) * dims;
#pragma unroll 1
    for (int c = static_cast<int>(lane); c < dims; c += 32) x[c] -= offset[c];
    __syncwarp();
  }
  const int head = index - shape.heads - (key ? 0 : shape.kv_heads);
  const KvPages& to = !copied ? pages : key ? a.copied.keys : a.copied.values;
  store_head(x, dims, to.type, kv_head_page(to, page, shape, head), position % kKvPageTokens, lane);
}

}  // namespace

void launch_rope_append(const RopeAppendArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  const int stored = a.queries_only ? 0 : 2 * a.heads.kv_heads;
  const unsigned heads = static_cast<unsigned>(a.heads.heads + stored);
  const auto dims = static_cast<std::size_t>(a.heads.head_dim);
  const float root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims)));
  const float factor = a.query_scale != 0 ? a.query_scale : root;
  rt::run(
      stream,
      {"rope_append", dim3(static_cast<unsigned>(a.batch.tokens), (heads + kWarps - 1) / kWarps),
       dim3(kThreads), std::size_t{2 * kWarps} * head_stride(a.heads.head_dim) * sizeof(float),
       rt::Start::early},
      rope_append, a, factor);
}

}  // namespace leq::LEQ_GPU
