// Prepares a head of q, k or v for attention by one warp, with the head in shared memory: its norm,
// rotation, the factor of q, and writing k and v to the cache's pages. Sums have the order of
// docs/numerics.md.
#pragma once

#include <cmath>

#include "cuda/kernels/attention/kv_encode.cuh"
#include "cuda/kernels/attention/kv_packed.cuh"
#include "cuda/kernels/rows/head_norm.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {

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
__device__ __forceinline__ void store_head_codes(const float* x, int dims, const KvHeadPage& page,
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
  if (stored_coded(type)) return store_head_codes(x, dims, page, slot, lane);
  for_quads(x, dims, lane, [&](int c, const Quad& quad) {
    std::byte* const row = page.numbers + slot * page.row_bytes;
    if (type == KvType::f32) return store_numbers(row, c, dims, quad.x);
    std::uint16_t halves[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) halves[i] = ptx::f32_to_f16(clamped(quad.x[i]));
    store_numbers(row, c, dims, halves);
  });
}

// A head's place in the cache. `index` counts the heads of q, k and v of a row.
struct HeadPlace {
  int position = 0, page = 0;

  HeadPlace() = default;
  __device__ __forceinline__ HeadPlace(const RopeAppendArguments& a, int row, int index) {
    // If all runs have one row, the row's number is its run's.
    const bool single = a.batch.single_runs == a.batch.tokens;
    const AttentionRun& run = a.batch.runs[single ? row : a.batch.row_runs[row]];
    position = run.first_position + row - run.first_row;
    if (index < a.heads.heads) return;
    const bool key = index < a.heads.heads + a.heads.kv_heads;
    // Where codes are encoded per block, a position's numbers are written to the page's f16 copy.
    const bool copied = (key ? a.keys : a.values).codes.packed();
    page = a.batch.pages[(copied ? run.copies_at : run.pages_at) + position / kKvPageTokens];
  }
};

// What a head's numbers are multiplied by; null: nothing.
__device__ __forceinline__ const float* gain_of(const RopeAppendArguments& a, int index) {
  if (index < a.heads.heads) return a.q_gain;
  return index < a.heads.heads + a.heads.kv_heads ? a.k_gain : a.v_gain;
}
__device__ __forceinline__ Angles angles_of(const RopeAppendArguments& a, int index, int position,
                                            unsigned lane) {
  const bool rotates = a.table != nullptr && index < a.heads.heads + a.heads.kv_heads;
  return rotates ? Angles(a.table + std::int64_t{position} * a.rotary_dims, a.rotary_dims, lane)
                 : Angles(nullptr, 0, lane);
}

// Prepares the head, whose numbers load(c) returns as quads. `x` and `gains` are a head each in
// shared memory; gains are already there.
template <class Load>
__device__ __forceinline__ void append_head(const RopeAppendArguments& a, float query_factor,
                                            const HeadPlace& place, const Angles& angles, int row,
                                            int index, float* x, const float* gains, unsigned lane,
                                            Load load) {
  const int dims = a.heads.head_dim;
  const bool query = index < a.heads.heads;
  const bool key = !query && index < a.heads.heads + a.heads.kv_heads;
  unsigned largest = 0;
  Quad next = load(static_cast<int>(lane) * 4);
  for (int c = static_cast<int>(lane) * 4; c < dims; c += 128) {
    store_quad(x, c, dims, next);
    largest = max(largest, absmax_of(next));
    next = load(c + 128);
  }
  __syncwarp();
  if (warp_max(largest) >= 0x7f800000u) {
    if (lane == 0) report_row(a.fault, row);
    return;
  }
  if (gain_of(a, index) != nullptr) {
    const float eps = query ? a.q_eps : key ? a.k_eps : a.v_eps;
    norm_head(x, dims, eps, lane, [&](int k) { return gains[k]; });
  }
  angles.rotate(x, lane);
  if (query) {
    const float factor = a.query_factors != nullptr
                             ? a.query_factors[place.position / a.query_period]
                             : query_factor;
    float* const there = a.qkv.values + row * a.qkv.stride + std::int64_t{index} * dims;
    for_quads(x, dims, lane, [&](int c, Quad quad) {
#pragma unroll
      for (int i = 0; i < 4; ++i) quad.x[i] = quad.x[i] * factor;
      store_quad(there, c, dims, quad);
    });
    return;
  }
  const int head = index - a.heads.heads - (key ? 0 : a.heads.kv_heads);
  if (key && a.key_offset != nullptr) {
    const float* const offset = a.key_offset + head * dims;
#pragma unroll 1
    for (int c = static_cast<int>(lane); c < dims; c += 32) x[c] -= offset[c];
    __syncwarp();
  }
  const KvPages& pages = key ? a.keys : a.values;
  const KvPages& copies = key ? a.copied.keys : a.copied.values;
  const KvPages& to = pages.codes.packed() ? copies : pages;
  store_head(x, dims, to.type, kv_head_page(to, place.page, a.heads, head),
             place.position % kKvPageTokens, lane);
}

// The factor of q at positions without a factor of their own.
inline float query_factor_of(const RopeAppendArguments& a) {
  if (a.query_scale != 0) return a.query_scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.heads.head_dim)));
}
// The heads of a row: of q and, unless rows have queries only, of k and v.
__device__ __host__ constexpr int heads_of_row(const RopeAppendArguments& a) {
  return a.heads.heads + (a.queries_only ? 0 : 2 * a.heads.kv_heads);
}

}  // namespace leq::LEQ_GPU
