// The kernels of attention that work on rows of numbers, over registers of any width (L, as in
// lanes.h): softmax, weighing, merging, and the conversion of the cache's numbers. Each file has
// its own copy, in an unnamed namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/lanes.h"

namespace leq::cpu {
namespace {

template <class L, class Number>
void widen(const void* numbers, std::int64_t n, float* out) noexcept {
  const auto* x = static_cast<const Number*>(numbers);
  for_registers<L>(n, [=](std::int64_t k, auto lanes) { lanes.store(out + k, lanes.load(x + k)); });
}

template <class L>
float lane_total(const float* lanes) noexcept {
  typename L::Floats sums[L::kParts];
  for (int i = 0; i < L::kParts; ++i) sums[i] = L::load(lanes + i * L::kLanes);
  return L::total(sums);
}

// The maximum over columns [first, last); the order does not matter.
template <class L>
float span_max(const float* scores, int first, int last) {
  constexpr int kLanes = L::kLanes;
  const typename L::Floats lowest = L::repeat(-__builtin_inff());
  typename L::Floats largest[2] = {lowest, lowest};
  int j = first / kLanes * kLanes;
  const auto masked = [&](int at) {
    const auto visible = L::lanes_between(first - at, last - at);
    largest[0] = L::max(largest[0], L::select(visible, L::load(scores + at), lowest));
  };
  if (j < first) masked(j), j += kLanes;
  for (; j + 2 * kLanes <= last; j += 2 * kLanes) {
    largest[0] = L::max(largest[0], L::load(scores + j));
    largest[1] = L::max(largest[1], L::load(scores + j + kLanes));
  }
  for (; j < last; j += kLanes) masked(j);
  return L::largest(L::max(largest[0], largest[1]));
}

template <class L>
SpanSum softmax(float* scores, int first, int last) noexcept {
  constexpr int kLanes = L::kLanes, kParts = L::kParts;
  constexpr int kAtOnce = kParts < 2 ? 2 : kParts;  // registers in a pass, to hide latency
  const float max = span_max<L>(scores, first, last);
  const typename L::Floats maximum = L::repeat(max);
  typename L::Floats lanes[kParts];
  for (auto& sum : lanes) sum = L::repeat(0.0f);
  const auto exp_at = [&](int at) { return exp_below<L>(L::load(scores + at) - maximum); };
  const auto masked = [&](int block) {
    for (int i = 0; i < kParts; ++i) {
      const int at = block + i * kLanes;
      const auto p = L::keep(exp_at(at), L::lanes_between(first - at, last - at));
      lanes[i] = L::add(lanes[i], p);
      L::store(scores + at, p);
    }
  };
  int block = first / 16 * 16;
  if (block < first) masked(block), block += 16;
  for (; block + kAtOnce * kLanes <= last; block += kAtOnce * kLanes) {
    typename L::Floats p[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) p[i] = exp_at(block + i * kLanes);
    for (int i = 0; i < kAtOnce; ++i) {
      lanes[i % kParts] = L::add(lanes[i % kParts], p[i]);
      L::store(scores + block + i * kLanes, p[i]);
    }
  }
  for (; block < last; block += 16) masked(block);
  return {max, L::total(lanes)};
}

// kBlocks blocks of 16 columns, all of which the queries see, beginning at `block`.
template <class L, int kBlocks>
void weigh_blocks(const WeighTile& tile, int block) {
  constexpr int kLanes = L::kLanes, kCount = kBlocks * L::kParts;
  typename L::Floats scale[kCount], minimum[kCount];
  for (int i = 0; i < kCount; ++i) {
    scale[i] = L::load(tile.scales + block + i * kLanes);
    minimum[i] = L::load(tile.minima + block + i * kLanes);
  }
  for (int r = 0; r < tile.queries; ++r) {
    typename L::Floats sums[L::kParts];
    for (int i = 0; i < L::kParts; ++i) sums[i] = L::load(tile.lanes[r] + i * kLanes);
    for (int i = 0; i < kCount; ++i) {
      const auto p = L::load(tile.p[r] + block + i * kLanes);
      sums[i % L::kParts] = L::fma(p, minimum[i], sums[i % L::kParts]);
      L::store(tile.weights[r] + block + i * kLanes, L::mul(p, scale[i]));
    }
    for (int i = 0; i < L::kParts; ++i) L::store(tile.lanes[r] + i * kLanes, sums[i]);
  }
}

// A block of which the queries see only columns [first, last) of the page.
template <class L>
void weigh_part(const WeighTile& tile, int block) {
  for (int i = 0; i < L::kParts; ++i) {
    const int at = block + i * L::kLanes;
    const auto visible = L::lanes_between(tile.first - at, tile.last - at);
    const auto scale = L::load(tile.scales + at);
    const auto minimum = L::keep(L::load(tile.minima + at), visible);
    for (int r = 0; r < tile.queries; ++r) {
      const auto p = L::load(tile.p[r] + at);
      float* const lanes = tile.lanes[r] + i * L::kLanes;
      L::store(lanes, L::fma(p, minimum, L::load(lanes)));
      L::store(tile.weights[r] + at, L::mul(p, scale), visible);
    }
  }
}

template <class L>
void weigh(const WeighTile& tile) noexcept {
  constexpr int kBlocks = L::kParts == 1 ? 4 : 1;  // whose scales fit into registers
  if (tile.first == 0 && tile.last == 64) {
    for (int block = 0; block < 64; block += 16 * kBlocks) weigh_blocks<L, kBlocks>(tile, block);
    return;
  }
  for (int block = tile.first / 16 * 16; block < tile.last; block += 16) {
    const bool whole = block >= tile.first && block + 16 <= tile.last;
    (whole ? weigh_blocks<L, 1> : weigh_part<L>)(tile, block);
  }
}

template <class L>
void merge(const float* part, float a, float b, std::int64_t n, float* total) noexcept {
  for_registers<L>(n, [=](std::int64_t k, auto lanes) {
    const auto scaled = L::mul(lanes.load(total + k), L::repeat(a));
    lanes.store(total + k, L::fma(lanes.load(part + k), L::repeat(b), scaled));
  });
}

template <class L>
void scale(const float* x, float factor, std::int64_t n, float* out) noexcept {
  for_registers<L>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(out + k, L::mul(lanes.load(x + k), L::repeat(factor)));
  });
}

template <class L>
void shift(const float* x, float addend, std::int64_t n, float* out) noexcept {
  for_registers<L>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(out + k, L::add(lanes.load(x + k), L::repeat(addend)));
  });
}

template <class L>
void rotate(const float* cosines, const float* sines, std::int64_t half, float* x) noexcept {
  for_registers<L>(half, [=](std::int64_t i, auto lanes) {
    const auto c = lanes.load(cosines + i), s = lanes.load(sines + i);
    const auto x0 = lanes.load(x + i), x1 = lanes.load(x + i + half);
    lanes.store(x + i, L::fnma(x1, s, L::mul(x0, c)));
    lanes.store(x + i + half, L::fma(x0, s, L::mul(x1, c)));
  });
}

template <class L>
typename L::Floats clamped(typename L::Floats x) {
  return L::min(L::max(x, L::repeat(-kLargestF16)), L::repeat(kLargestF16));
}

void keep(const float* x, std::int64_t n, void* out, std::uint16_t*, std::uint16_t*) noexcept {
  __builtin_memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
}

template <class L>
void narrow(const float* x, std::int64_t n, void* halves, std::uint16_t*, std::uint16_t*) noexcept {
  auto* out = static_cast<std::uint16_t*>(halves);
  for_registers<L>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(out + k, L::to_halves(clamped<L>(lanes.load(x + k))));
  });
}

// m = min rounded down, s = (max - m) / 255 rounded up, u = clip(rne((x - m) / s), 0, 255)
template <class L>
void encode(const float* x, std::int64_t n, void* numbers, std::uint16_t* scale_out,
            std::uint16_t* minimum_out) noexcept {
  auto* codes = static_cast<std::uint8_t*>(numbers);
  typename L::Floats low = L::repeat(kLargestF16), high = L::repeat(-kLargestF16);
  for_registers<L>(n, [&](std::int64_t k, auto lanes) {
    const auto value = clamped<L>(lanes.load(x + k));
    low = L::min(low, lanes.or_else(value, low));
    high = L::max(high, lanes.or_else(value, high));
  });
  *minimum_out = L::half_below(L::smallest(low) + 0.0f);
  const float m = L::to_float(*minimum_out);
  *scale_out = L::half_above(((L::largest(high) - m) + 0.0f) / 255.0f);
  const float s = L::to_float(*scale_out);
  if (s == 0.0f) {
    __builtin_memset(codes, 0, static_cast<std::size_t>(n));
    return;
  }
  for_registers<L>(n, [=](std::int64_t k, auto lanes) {
    const auto steps = (clamped<L>(lanes.load(x + k)) - L::repeat(m)) / L::repeat(s);
    lanes.store(codes + k, L::to_bytes(L::min(steps, L::repeat(255.0f))));
  });
}

// All kernels but those of scores and values.
template <class L>
constexpr AttentionKernels row_kernels_of_attention() {
  AttentionKernels all = {};
  all.kv[0].store = keep;
  all.kv[1].store = narrow<L>;
  all.kv[2].store = encode<L>;
  all.kv[1].widen = widen<L, std::uint16_t>;
  all.kv[2].widen = widen<L, std::uint8_t>;
  all.softmax = softmax<L>;
  all.weigh = weigh<L>;
  all.lane_total = lane_total<L>;
  all.merge = merge<L>;
  all.scale = scale<L>;
  all.shift = shift<L>;
  all.rotate = rotate<L>;
  return all;
}

}  // namespace
}  // namespace leq::cpu
