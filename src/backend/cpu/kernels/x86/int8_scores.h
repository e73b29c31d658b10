// Scores of int8 keys by products of bytes, over registers of 256 or 512 bits: a lane holds a quad
// of dimensions of a key. The template argument Products multiplies the quads:
//   Lanes                     the registers
//   most_blocks(queries)      blocks of 16 keys whose sums fit into registers; 1 for one query, if
//                             memory is read faster sequentially
//   add(codes, quads, sums)   sums[r][i] += the four products of each lane of the codes of keys,
//                             codes(i), and the four codes of query r
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// In quads, by L::dot. Either queries or keys are held in registers, whichever are fewer. A sum is
// copied around the assembly of L::dot, or g++ 12 keeps the sums in memory.
template <class L>
struct QuadProducts {
  using Lanes = L;
  static constexpr int most_blocks(int queries) {
    if (L::kManyRegisters) return queries == 1 ? 1 : 4;
    return queries == 1 ? 4 : queries == 2 ? 2 : 1;
  }

  template <int R, int N, class Codes>
  static inline __attribute__((always_inline)) void add(Codes codes, const std::int32_t (&quads)[R],
                                                        typename L::Ints (&sums)[R][N]) {
    if constexpr (L::kManyRegisters || N < R) {
      typename L::Ints key[N];
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) key[i] = codes(i);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const typename L::Ints quad = L::repeat32(quads[r]);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
          typename L::Ints sum = sums[r][i];
          L::dot(sum, key[i], quad);
          sums[r][i] = sum;
        }
      }
    } else {
      typename L::Ints quad[R];
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) quad[r] = L::repeat32(quads[r]);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const typename L::Ints key = codes(i);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          typename L::Ints sum = sums[r][i];
          L::dot(sum, key, quad[r]);
          sums[r][i] = sum;
        }
      }
    }
  }
};

// Widened to 16 bits: columns 0 and 2 of a quad, and columns 1 and 3. Shifts widen the odd bytes
// and a mask the even ones, so that nothing saturates.
template <class L>
struct PairProducts {
  using Lanes = L;
  static constexpr int most_blocks(int queries) { return queries == 1 ? 1 : queries <= 3 ? 4 : 2; }

  template <int R, int N, class Codes>
  static inline __attribute__((always_inline)) void add(Codes codes, const std::int32_t (&quads)[R],
                                                        typename L::Ints (&sums)[R][N]) {
    typename L::Ints even[R], odd[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const typename L::Ints quad = L::repeat32(quads[r]);
      even[r] = L::high_signed(L::template shifted<8>(quad));
      odd[r] = L::high_signed(quad);
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const typename L::Ints key = codes(i);
      const typename L::Ints low = L::both(key, L::repeat16(0xff));
      const typename L::Ints high = L::template shifted<-8>(key);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        sums[r][i] = L::add32(sums[r][i], L::products16(low, even[r]));
        sums[r][i] = L::add32(sums[r][i], L::products16(high, odd[r]));
      }
    }
  }
};

// score = s_q * fma(s, float(sum u q), m * float(sum q)) of register `i` of keys from `block` on.
template <class L>
inline __attribute__((always_inline)) void finish_scores(const ScoreTile& tile, int block, int i,
                                                         int r, typename L::Ints sum) {
  const int j = block * kKeyBlock + i * L::kLanes;
  const typename L::Floats low = L::mul(L::load(tile.minima + j), L::repeat(tile.code_sum[r]));
  const typename L::Floats value = L::fma(L::load(tile.scales + j), L::to_floats(sum), low);
  L::store(tile.scores[r] + j, L::mul(L::repeat(tile.code_scale[r]), value));
}

// Blocks [block, block + B), R queries.
template <class Products, int R, int B>
void int8_blocks(const ScoreTile& tile, int block, const Prefetcher& ahead) noexcept {
  using L = typename Products::Lanes;
  constexpr int kParts = L::kParts, kCount = B * kParts;
  const std::int64_t quads = (tile.dims + 3) / 4;
  const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
  const std::int8_t* codes[R];
  constexpr bool kTwoChains = R * kCount < 4;  // with few chains a second sum hides latency
  typename L::Ints sums[R][kCount], odd[R][kCount];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    codes[r] = tile.codes[r];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) sums[r][i] = odd[r][i] = L::repeat32(0);
  }
  const auto add = [&](std::int64_t quad, typename L::Ints(&to)[R][kCount]) {
    ahead.step(quad);
    std::int32_t four[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) __builtin_memcpy(&four[r], codes[r] + quad * 4, sizeof four[r]);
    const auto key = [&](int i) __attribute__((always_inline)) {
      return L::load_anywhere(keys + (i / kParts * quads + quad) * 64 + i % kParts * L::kBytes);
    };
    Products::template add<R, kCount>(key, four, to);
  };
  std::int64_t quad = 0;
  if constexpr (kTwoChains) {
    for (; quad + 2 <= quads; quad += 2) {
      add(quad, sums);
      add(quad + 1, odd);
    }
  }
  for (; quad < quads; ++quad) add(quad, sums);
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const auto sum = kTwoChains ? L::add32(sums[r][i], odd[r][i]) : sums[r][i];
      finish_scores<L>(tile, block, i, r, sum);
    }
  }
}

template <class Products, int R>
void int8_rows(const ScoreTile& tile) noexcept {
  constexpr int kBlocks = Products::most_blocks(R);
  int block = tile.first_block;
  const std::int64_t quads = (tile.dims + 3) / 4;
  Prefetcher ahead(tile.ahead, turns(tile, kBlocks) * quads);
  for (; block + kBlocks <= tile.last_block; block += kBlocks) {
    int8_blocks<Products, R, kBlocks>(tile, block, ahead);
    ahead = ahead.after(quads);
  }
  for (; block < tile.last_block; ++block) int8_blocks<Products, R, 1>(tile, block, ahead);
}

template <class Products>
void int8_scores(const ScoreTile& tile) noexcept {
  using Rows = void (*)(const ScoreTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {int8_rows<Products, 1>, int8_rows<Products, 2>,
                                      int8_rows<Products, 3>, int8_rows<Products, 4>,
                                      int8_rows<Products, 5>, int8_rows<Products, 6>};
  kRows[tile.queries - 1](tile);
}

}  // namespace
}  // namespace leq::cpu
