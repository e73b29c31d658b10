// The kernels of attention that work on rows of numbers, over registers of any width (L, as in
// lanes.h): softmax, weighing, merging, and the conversion of the cache's numbers. Each file has
// its own copy, in an unnamed namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/kernels/portable.inc"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// sums[r][i] += factor(r) * vector(i), with all sums in registers. If there are 16 registers,
// either factors or vectors are held in registers, whichever are fewer; the others are loaded one
// at a time. With both held, g++ 12 spills the sums to memory, and each product waits for the
// previous store.
// With 32 registers, prefetch() is called between the loads and the products: then g++ 12 loads a
// vector once, and not again in each product.
template <class L, int R, int N, class Factor, class Vector, class Prefetch>
inline __attribute__((always_inline)) void add_products(typename L::Floats (&sums)[R][N],
                                                        Factor factor, Vector vector,
                                                        Prefetch prefetch) {
  if constexpr (!L::kManyRegisters) prefetch();
  if constexpr (L::kManyRegisters || N < R) {
    typename L::Floats y[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) y[i] = vector(i);
    if constexpr (L::kManyRegisters) prefetch();
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const typename L::Floats x = factor(r);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) sums[r][i] = L::fma(x, y[i], sums[r][i]);
    }
  } else {
    typename L::Floats x[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) x[r] = factor(r);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const typename L::Floats y = vector(i);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) sums[r][i] = L::fma(x[r], y, sums[r][i]);
    }
  }
}

// Scores of key blocks [block, block + B), 16 keys each, for R queries; one fma chain per key.
template <class L, class Key, int R, int B>
void float_blocks(const ScoreTile& tile, int block, const Prefetcher& ahead) noexcept {
  constexpr int kParts = L::kParts, kCount = B * kParts;
  const std::int64_t dims = tile.dims;
  const Key* keys = static_cast<const Key*>(tile.keys) + block * dims * kKeyBlock;
  const float* query[R];
  typename L::Floats sums[R][kCount];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    query[r] = tile.query[r];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) sums[r][i] = L::repeat(0.0f);
  }
  for (std::int64_t c = 0; c < dims; ++c) {
    add_products<L>(
        sums, [&](int r) { return L::repeat(query[r][c]); },
        [&](int i) {
          return L::load(keys + (i / kParts * dims + c) * kKeyBlock + i % kParts * L::kLanes);
        },
        [&]() __attribute__((always_inline)) { ahead.step(c); });
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      L::store(tile.scores[r] + block * kKeyBlock + i * L::kLanes, sums[r][i]);
    }
  }
}

// Key blocks per pass: few queries need more fma chains, from more keys, to hide latency.
template <class L>
constexpr int blocks_at_once(int queries) {
  return L::kManyRegisters || queries == 1 ? 4 : queries == 2 ? 2 : 1;
}

template <class L, class Key, int R, int B = blocks_at_once<L>(R)>
void float_passes(const ScoreTile& tile, int block, Prefetcher ahead) noexcept {
  const int last = B > 1 && tile.in_order ? block : tile.last_block;
  for (; block + B <= last; block += B) {
    float_blocks<L, Key, R, B>(tile, block, ahead);
    ahead = ahead.after(tile.dims);
  }
  if constexpr (B > 1) float_passes<L, Key, R, B / 2>(tile, block, ahead);
}

template <class L, class Key, int R>
void float_rows(const ScoreTile& tile) noexcept {
  const std::int64_t steps = turns(tile, blocks_at_once<L>(R)) * tile.dims;
  float_passes<L, Key, R>(tile, tile.first_block, Prefetcher(tile.ahead, steps));
}

template <class L, class Key>
void float_scores(const ScoreTile& tile) noexcept {
  using Rows = void (*)(const ScoreTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {float_rows<L, Key, 1>, float_rows<L, Key, 2>,
                                      float_rows<L, Key, 3>, float_rows<L, Key, 4>,
                                      float_rows<L, Key, 5>, float_rows<L, Key, 6>};
  kRows[tile.queries - 1](tile);
}

// Lines of values are also prefetched into L1, this many lines ahead, because memory is read faster
// with prefetches into both L1 and L2 than into one of them. Usually the memory behind a head's
// part of a page is read next. (8-bit keys are read as four streams and become slower.)
constexpr std::int64_t kLinesNear = 16;

// Adds to output columns [column, column + kLanes D) of R queries.
template <class L, class Value, int R, int D>
void value_columns(const ValueTile& tile, std::int64_t column) noexcept {
  constexpr int kLanes = L::kLanes;
  const Value* values = static_cast<const Value*>(tile.values) + column;
  const float* weights[R];
  typename L::Floats sums[R][D];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    weights[r] = tile.weights[r];
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) sums[r][i] = L::load(tile.out[r] + column + i * kLanes);
  }
  // With many queries, f32 values are not prefetched: a page was just widened and is in the cache.
  constexpr bool kNear = L::kManyRegisters && (sizeof(Value) < sizeof(float) || R <= 3);
  const Prefetcher ahead(share_of(tile.ahead, column, column + kLanes * D, tile.dims),
                         tile.last - tile.first);
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    const Value* at = values + j * tile.dims;
    ahead.step(j - tile.first);
    add_products<L>(
        sums, [&](int r) { return L::repeat(weights[r][j]); },
        [&](int i) {
          if (kNear && tile.near && i * kLanes * sizeof(Value) % 64 == 0) {
            const auto* line = reinterpret_cast<const char*>(at + i * kLanes);
            _mm_prefetch(line + kLinesNear * 64, _MM_HINT_T0);
          }
          return L::load(at + i * kLanes);
        },
        [] {});
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) L::store(tile.out[r] + column + i * kLanes, sums[r][i]);
  }
}

// Registers of columns per pass: few queries need more chains to hide latency.
template <class L>
constexpr int columns_at_once(int queries) {
  if (L::kManyRegisters) return queries <= 3 ? 8 : 4;
  return queries == 1 ? 8 : queries <= 3 ? 4 : 2;
}

template <class L, class Value, int R, int D = columns_at_once<L>(R)>
void value_rows(const ValueTile& tile, std::int64_t column) noexcept {
  for (; column + L::kLanes * D <= tile.dims; column += L::kLanes * D) {
    value_columns<L, Value, R, D>(tile, column);
  }
  if constexpr (D > L::kParts) {
    value_rows<L, Value, R, D / 2>(tile, column);
  } else {  // the last columns, fewer than 16
    const Value* values = static_cast<const Value*>(tile.values) + column;
    for_registers<L>(tile.dims - column, [&](std::int64_t k, auto lanes) {
      for (int r = 0; r < R; ++r) {
        float* const out = tile.out[r] + column + k;
        typename L::Floats sum = lanes.load(out);
        for (std::int64_t j = tile.first; j < tile.last; ++j) {
          const auto value = lanes.load(values + j * tile.dims + k);
          sum = L::fma(L::repeat(tile.weights[r][j]), value, sum);
        }
        lanes.store(out, sum);
      }
    });
  }
}

template <class L, class Value>
void weighted_values(const ValueTile& tile) noexcept {
  using Rows = void (*)(const ValueTile&, std::int64_t) noexcept;
  constexpr Rows kRows[kQueryTile] = {value_rows<L, Value, 1>, value_rows<L, Value, 2>,
                                      value_rows<L, Value, 3>, value_rows<L, Value, 4>,
                                      value_rows<L, Value, 5>, value_rows<L, Value, 6>};
  kRows[tile.queries - 1](tile, 0);
}

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

// Packed codes. Queries that share the codes of each load.
template <class L>
constexpr int kPackedQueries = L::kManyRegisters ? kQueryTile : 3;

// Scores of key blocks [block, block + B) for queries [first, first + R). `block` is even if B is
// 2, and 0 if B is 4, so that blocks in the same bytes share loads. Many fma chains hide latency.
template <class L, int bits, int R, int B>
void packed_blocks(const PackedScoreTile& tile, int block, int first) noexcept {
  constexpr int kParts = L::kParts;
  constexpr int kBlocks = 8 / bits;                     // blocks of 16 keys in a row of 16 bytes
  constexpr int kRows = B > kBlocks ? B / kBlocks : 1;  // rows of 16 bytes
  constexpr bool kWhole = B % kBlocks == 0;             // the blocks fill whole rows
  const std::int64_t dims = tile.dims;
  const std::uint8_t* rows[kRows];
  const int begin = block % kBlocks * bits;
  typename L::Floats sums[R][B][kParts];
  const float* query[R][B];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) rows[i] = tile.keys + (block / kBlocks + i) * dims * 16;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      query[r][b] = tile.query[first + r][(block + b) / 2];
#pragma GCC unroll 2
      for (auto& sum : sums[r][b]) sum = L::repeat(tile.start[first + r][(block + b) / 2]);
    }
  }
  Prefetcher ahead(block == tile.first_block && first == 0 ? tile.ahead : Ahead{}, dims);
  for (std::int64_t c = 0; c < dims; ++c) {
    ahead.step(c);
    typename L::Floats keys[B][kParts];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        auto lanes = L::from_u8(rows[i] + c * 16 + part * L::kLanes);
        if constexpr (!kWhole) lanes = L::shifted_down(lanes, begin);
#pragma GCC unroll 4
        for (int n = 0; n < B / kRows; ++n) {
          const int b = i * (B / kRows) + n;
          const auto key = L::template low_codes<bits>(L::shifted_down(lanes, n * bits));
          keys[b][part] = key;
          if constexpr (!L::kManyRegisters) {
#pragma GCC unroll 3
            for (int r = 0; r < R; ++r) {
              sums[r][b][part] = L::fma(L::repeat(query[r][b][c]), key, sums[r][b][part]);
            }
          }
        }
      }
    }
    if constexpr (L::kManyRegisters) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) {
#pragma GCC unroll 2
          for (int part = 0; part < kParts; ++part) {
            sums[r][b][part] = L::fma(L::repeat(query[r][b][c]), keys[b][part], sums[r][b][part]);
          }
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      float* const scores = tile.scores[first + r] + (block + b) * kKeyBlock;
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part)
        L::store(scores + part * L::kLanes, sums[r][b][part]);
    }
  }
}

template <class L, int bits, int R>
void packed_score_rows(const PackedScoreTile& tile, int first) noexcept {
  int block = tile.first_block;
  if constexpr (L::kManyRegisters || R == 1) {
    if (block == 0 && tile.last_block == 4) return packed_blocks<L, bits, R, 4>(tile, 0, first);
  }
  if (block % 2 == 1 && block < tile.last_block) packed_blocks<L, bits, R, 1>(tile, block++, first);
  for (; block + 2 <= tile.last_block; block += 2) packed_blocks<L, bits, R, 2>(tile, block, first);
  for (; block < tile.last_block; ++block) packed_blocks<L, bits, R, 1>(tile, block, first);
}

// Calls row kernels [queries - 1](tile, first query) for tiles of at most `most` queries.
template <class Tile, class Rows>
inline void by_queries(const Tile& tile, const Rows* rows, int most) {
  for (int first = 0; first < tile.queries; first += most) {
    const int left = tile.queries - first;
    rows[(left < most ? left : most) - 1](tile, first);
  }
}

template <class L, int bits, int... R>
void packed_scores_of(const PackedScoreTile& tile, std::integer_sequence<int, R...>) {
  using Rows = void (*)(const PackedScoreTile&, int) noexcept;
  constexpr Rows kRows[] = {packed_score_rows<L, bits, R + 1>...};
  by_queries(tile, kRows, sizeof...(R));
}
template <class L, int bits>
void packed_scores(const PackedScoreTile& tile) noexcept {
  packed_scores_of<L, bits>(tile, std::make_integer_sequence<int, kPackedQueries<L>>());
}

// Adds to 16 D channels, beginning at `column`, of queries [first, first + R); results go to `out`.
template <class L, int bits, int R, int D>
void packed_columns(const PackedValueTile& tile, int column, int first,
                    float* const* out) noexcept {
  constexpr int kParts = L::kParts;
  const std::uint8_t* values = tile.values + column / 16 * 2 * bits;
  typename L::Floats sums[R][D][kParts];
  const float* weights[R];
  std::int64_t group[D];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) weights[r] = tile.weights[first + r];
#pragma GCC unroll 8
  for (int i = 0; i < D; ++i) {
    group[i] = (column + i * 16) / tile.group * kPageColumns;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        sums[r][i][part] = L::load(out[r] + i * 16 + part * L::kLanes);
      }
    }
  }
  Prefetcher ahead(first == 0 ? share_of(tile.ahead, column, column + 16 * D, tile.dims) : Ahead{},
                   tile.last - tile.first);
  const auto add = [&](int i, int r, std::int64_t j, const typename L::Floats(&value)[kParts])
      __attribute__((always_inline)) {
    const typename L::Floats weight = L::repeat(weights[r][group[i] + j]);
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      sums[r][i][part] = L::fma(weight, value[part], sums[r][i][part]);
    }
  };
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    const std::uint8_t* at = values + j * tile.row_bytes;
    ahead.step(j - tile.first);
    typename L::Floats value[D][kParts];
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        value[i][part] = L::template channels<bits>(at + i * 2 * bits, part);
      }
      if constexpr (!L::kManyRegisters) {
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r) add(i, r, j, value[i]);
      }
    }
    if constexpr (L::kManyRegisters) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < D; ++i) add(i, r, j, value[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < D; ++i) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        L::store(out[r] + i * 16 + part * L::kLanes, sums[r][i][part]);
      }
    }
  }
}

template <class L>
constexpr int packed_columns_at_once(int queries) {
  if (L::kManyRegisters) return queries <= 2 ? 8 : 4;
  return queries == 1 ? 4 : 2;
}

template <class L, int bits, int R, int D>
void packed_passes(const PackedValueTile& tile, int column, int first) noexcept {
  float* out[R];
  for (; column + 16 * D <= tile.dims; column += 16 * D) {
    for (int r = 0; r < R; ++r) out[r] = tile.out[first + r] + column;
    packed_columns<L, bits, R, D>(tile, column, first, out);
  }
  if constexpr (D > 1) return packed_passes<L, bits, R, D / 2>(tile, column, first);
  if (column == tile.dims) return;
  const int rest = tile.dims - column;  // fewer than 16 columns are computed in a buffer
  float buffer[R][16];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 16; ++i) buffer[r][i] = i < rest ? tile.out[first + r][column + i] : 0.0f;
    out[r] = buffer[r];
  }
  packed_columns<L, bits, R, 1>(tile, column, first, out);
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < rest; ++i) tile.out[first + r][column + i] = buffer[r][i];
  }
}

template <class L, int bits, int R>
void packed_value_rows(const PackedValueTile& tile, int first) noexcept {
  packed_passes<L, bits, R, packed_columns_at_once<L>(R)>(tile, 0, first);
}

template <class L, int bits, int... R>
void packed_values_of(const PackedValueTile& tile, std::integer_sequence<int, R...>) {
  using Rows = void (*)(const PackedValueTile&, int) noexcept;
  constexpr Rows kRows[] = {packed_value_rows<L, bits, R + 1>...};
  by_queries(tile, kRows, sizeof...(R));
}
template <class L, int bits>
void packed_values(const PackedValueTile& tile) noexcept {
  packed_values_of<L, bits>(tile, std::make_integer_sequence<int, kPackedQueries<L>>());
}

// Channels [first, first + kLanes) of the rows, as columns of 16 numbers; missing numbers are +0.
template <class L>
void chain_columns(const ChainTile& tile, int first, float (&columns)[L::kLanes][kMaxChains]) {
  constexpr int kLanes = L::kLanes;
  const PartRegister<L> part{tile.dims - first, {}};
  for (int row = 0; row < kMaxChains; row += kLanes) {
    typename L::Floats x[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      if (row + i >= tile.count) {
        x[i] = L::repeat(0.0f);
      } else {
        const std::uint16_t* const halves = tile.rows[row + i] + first;
        x[i] = part.count >= kLanes ? L::load(halves) : part.load(halves);
      }
    }
    L::transpose(x);
    for (int c = 0; c < kLanes; ++c) L::store(columns[c] + row, x[c]);
  }
}

// kParts registers hold 16 chains, one chain in each lane; queries share the transposed rows.
template <class L, int R>
void chain_rows(const ChainTile& tile) noexcept {
  typename L::Floats sums[R][L::kParts];
  for (auto& parts : sums) {
    for (auto& sum : parts) sum = L::repeat(0.0f);
  }
  for (int first = 0; first < tile.dims; first += L::kLanes) {
    alignas(64) float columns[L::kLanes][kMaxChains];
    chain_columns<L>(tile, first, columns);
    const int last = tile.dims - first < L::kLanes ? tile.dims - first : L::kLanes;
    for (int c = 0; c < last; ++c) {
      add_products<L>(
          sums, [&](int r) { return L::repeat(tile.query[r][first + c]); },
          [&](int i) { return L::load(columns[c] + i * L::kLanes); }, [] {});
    }
  }
  for (int r = 0; r < R; ++r) {
    float z[kMaxChains];
    for (int i = 0; i < L::kParts; ++i) L::store(z + i * L::kLanes, sums[r][i]);
    for (int i = 0; i < tile.count; ++i) tile.z[r][i] = z[i];
  }
}

template <class L>
void wide_chains(const ChainTile& tile) noexcept {
  using Rows = void (*)(const ChainTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {chain_rows<L, 1>, chain_rows<L, 2>, chain_rows<L, 3>,
                                      chain_rows<L, 4>, chain_rows<L, 5>, chain_rows<L, 6>};
  kRows[tile.queries - 1](tile);
}

// All kernels but those of int8 scores.
template <class L>
constexpr AttentionKernels attention_kernels_of(void (*int8_scores)(const ScoreTile&) noexcept) {
  return {.kv = {{.scores = float_scores<L, float>,
                  .values = weighted_values<L, float>,
                  .widen = nullptr,
                  .store = keep},
                 {.scores = float_scores<L, std::uint16_t>,
                  .values = weighted_values<L, std::uint16_t>,
                  .widen = widen<L, std::uint16_t>,
                  .store = narrow<L>},
                 {.scores = int8_scores,
                  .values = weighted_values<L, std::uint8_t>,
                  .widen = widen<L, std::uint8_t>,
                  .store = encode<L>}},
          .columns_in_order = L::kManyRegisters ? 128 : 64,
          .softmax = softmax<L>,
          .weigh = weigh<L>,
          .lane_total = lane_total<L>,
          .merge = merge<L>,
          .scale = scale<L>,
          .shift = shift<L>,
          .rotate = rotate<L>};
}

template <class L>
constexpr PackedKernels packed_kernels_of() {
  return {.scores = {packed_scores<L, 8>, packed_scores<L, 4>, packed_scores<L, 2>},
          .values = {packed_values<L, 8>, packed_values<L, 4>, packed_values<L, 2>},
          .chains = wide_chains<L>,
          .fold = plain::fold,
          .rescale = plain::rescale,
          .encode = plain::encode_packed,
          .rotate = plain::rotate_head};
}

}  // namespace
}  // namespace leq::cpu
