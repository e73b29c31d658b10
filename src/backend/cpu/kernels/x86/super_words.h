// Codes under superblock scales for many tokens without 512-bit dot products. A code (q6_k: minus
// its zero point) times its sub-scale has at most 13 bits with sign. These products are written as
// 16-bit numbers for vpmaddwd, once for a block of tokens, so that a span's sums need no scales.
#pragma once

#include "backend/cpu/kernels/x86/products.h"
#include "backend/cpu/kernels/x86/super_codes.h"

namespace leq::cpu {
namespace {

// 16-bit weights in the order of WideCodes, which are never unpacked by a tile.
template <class L>
struct ReadyWords : WideCodes<L> {
  static constexpr bool kUnpacks = false;
  static constexpr bool kUnsigned = true;  // inputs are signed
};

template <class Lanes, int kMaxTokens>
struct SuperWords : WordProducts<Lanes, kMaxTokens, ReadyWords<Lanes>> {
  using L = Lanes;
  using Ints = typename L::Ints;
  using Products = WordProducts<Lanes, kMaxTokens, ReadyWords<Lanes>>;
  static constexpr std::int64_t kColumns = Products::kKTileColumns;
  static constexpr std::int64_t kBlockTokens = Products::kBlockTokens;
  static constexpr std::int64_t kPairStride = kColumns / 64 + 2;  // a span reads two pairs
  static constexpr int kTileOutputs = 2 * L::kOutputs;
  // Bytes of a register pair's weights for four columns.
  static constexpr int kQuadBytes = 2 * Products::kPairBytes;

  struct alignas(64) Scratch {
    float sums[kBlockTokens * 64];  // per tile: [tokens][outputs of a register pair]
    SpanNumbers<kColumns> numbers;
    std::int32_t pairs[kBlockTokens][kPairStride];
    alignas(64) std::uint8_t weights[Products::kCodeScratch];
    alignas(64) std::uint8_t inputs[Products::kInputCapacity];
  };
  static_assert(sizeof(Scratch) <= kSuperScratchBytes);

  template <int kBits, int kQuad>
  static inline __attribute__((always_inline)) void write_quads(const SuperPanel& panel,
                                                                std::int64_t k, int output,
                                                                const Ints (&scales)[2],
                                                                std::uint8_t* to) {
    if constexpr (kQuad < 8) {
      const Ints codes = quad_codes<L, kBits, kQuad>(panel, k, output);
      Ints even = L::both(codes, L::repeat16(255)), odd = L::template shifted<-8>(codes);
      if constexpr (kBits == 6) {
        even = L::sub16(even, L::repeat16(32));
        odd = L::sub16(odd, L::repeat16(32));
      }
      L::store_ints(to, L::mul16(even, scales[kQuad / 4]));
      L::store_ints(to + Products::kPairBytes, L::mul16(odd, scales[kQuad / 4]));
      write_quads<kBits, kQuad + 1>(panel, k, output, scales, to + kQuadBytes);
    }
  }

  // Writes a K tile's weights for a register pair of outputs.
  template <int kBits>
  static void write_weights(const SuperPanel& panel, const KTile& k_tile, int output,
                            std::uint8_t* to) {
    constexpr std::int64_t kSub = kBits == 6 ? 16 : 32, kNumbers = kBits == 6 ? 1 : 2;
    const std::int64_t end = k_tile.first + k_tile.columns;
    for (std::int64_t k = k_tile.first; k < end; k += 32, to += 8 * kQuadBytes) {
      for (int j = 0; j < 2; ++j) {
        const int at = output + j * L::kOutputs;
        Ints scales[2];
        for (int half = 0; half < 2; ++half) {
          const std::int64_t block = (k + 16 * half) / kSub;
          const std::uint8_t* from = panel.sub_scales + block * kNumbers * 64 + at;
          const Ints scale = kBits == 6 ? L::from_i8(from) : L::from_u8(from);
          scales[half] = L::twice(L::both(scale, L::repeat32(0xffff)));
        }
        write_quads<kBits, 0>(panel, k, at, scales, to + j * L::kBytes);
      }
    }
  }

  // M tokens x a register pair of outputs of a K tile.
  struct Tile {
    const SuperPanel& panel;
    const KTile& k_tile;
    Scratch& scratch;
    Cursor cursor;
    std::int64_t first;  // first token within the block
    int output;
    float* sums;
  };

  template <int kBits, int M>
  static void run_tile(const Tile& tile) {
    const SuperPanel& panel = tile.panel;
    const SpanNumbers<kColumns>& numbers = tile.scratch.numbers;
    Cursor cursor = tile.cursor;
    const std::int64_t token = tile.k_tile.token + tile.first;
    const std::int64_t scale_stride = panel.token_scale_stride;
    const float* by_token = panel.token_scales + token * scale_stride;
    if (panel.scale_by_span) by_token += tile.k_tile.first / panel.span;
    const std::int64_t left = panel.columns - tile.k_tile.first;
    const std::int64_t columns = left < tile.k_tile.columns ? left : tile.k_tile.columns;
    for (std::int64_t k = 0, span = 0; k < columns; k += panel.span, ++span) {
      Ints c[M][2];
      Products::template add<Codes::ready>(
          cursor, panel.span, c, [&]() __attribute__((always_inline)) {
#pragma GCC unroll 12
            for (int m = 0; m < M; ++m) c[m][0] = c[m][1] = L::repeat32(0);
          });
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const int at = tile.output + j * L::kOutputs;
        const auto d = L::load(numbers.d[k / 256] + at);
        const auto dmin = L::load(numbers.dmin[k / 256] + at);
        const Ints low = L::load_ints(numbers.minima[span][0][at]);
        const Ints high = L::load_ints(numbers.minima[span][1][at]);
#pragma GCC unroll 12
        for (int m = 0; m < M; ++m) {
          float* const f = tile.sums + (2 * m + j) * L::kOutputs;
          const auto scale = L::repeat(by_token[m * scale_stride]);
          L::add_scaled(f, c[m][j], d, scale);
          if constexpr (kBits != 6) {
            const std::int32_t* pairs = tile.scratch.pairs[tile.first + m] + k / 64;
            Ints b = L::add32(L::products16(low, L::repeat32(pairs[0])),
                              L::products16(high, L::repeat32(pairs[1])));
            b = L::sub32(L::repeat32(0), b);
            L::add_scaled(f, b, dmin, scale);
          }
        }
      }
      if (panel.scale_by_span) ++by_token;
    }
  }

  template <int kBits, int M = (kMaxTokens + 1) / 2>
  static auto tile_of(std::int64_t tokens) -> void (*)(const Tile&) {
    if constexpr (M < kMaxTokens) {
      if (tokens > M) return tile_of<kBits, M + 1>(tokens);
    }
    return run_tile<kBits, M>;
  }

  static void write_outputs(const Tile& tile, std::int64_t tokens) {
    const SuperPanel& panel = tile.panel;
    const float* sums = tile.sums;
    for (std::int64_t m = 0; m < tokens; ++m) {
      float* const y = panel.y + (tile.k_tile.token + tile.first + m) * panel.y_stride;
      for (int j = 0; j < 2; ++j, sums += L::kOutputs) {
        const int at = tile.output + j * L::kOutputs;
        const auto f = L::load(sums);
        L::store(y + at, panel.bias == nullptr ? f : L::add(f, L::load(panel.bias + at)));
      }
    }
  }

  template <int kBits>
  static void run_k_tile(const SuperPanel& panel, const KTile& k_tile, bool last,
                         Scratch& scratch) {
    read_numbers<L, kBits != 6>(panel, k_tile.first, k_tile.columns, scratch.numbers);
    for (std::int64_t t = 0; kBits != 6 && t < k_tile.tokens; ++t) {
      pair_sums(panel, k_tile.token + t, k_tile.first, k_tile.columns, scratch.pairs[t]);
    }
    IntPanel rows;
    rows.inputs = panel.inputs;
    rows.input_stride = panel.input_stride;
    const KTileInputs inputs = Products::inputs_of(rows, k_tile, scratch.inputs);
    const std::int64_t tiles = (k_tile.tokens + kMaxTokens - 1) / kMaxTokens;
    Tile tile{panel, k_tile, scratch, {}, 0, 0, nullptr};
    tile.cursor.codes = scratch.weights;
    tile.cursor.stride = inputs.stride;
    for (; tile.output < 64; tile.output += kTileOutputs) {
      write_weights<kBits>(panel, k_tile, tile.output, scratch.weights);
      for (std::int64_t i = 0; i < tiles; ++i) {
        tile.first = k_tile.tokens * i / tiles;
        const std::int64_t count = k_tile.tokens * (i + 1) / tiles - tile.first;
        tile.sums = scratch.sums + tile.output * k_tile.tokens + tile.first * kTileOutputs;
        // The tiles prefetch the codes of the next K tile, or of the next panel, which follows.
        tile.cursor.ahead =
            panel.codes + (k_tile.first + k_tile.columns) * 32 + i % 8 * kColumns / 32 * 128;
        tile.cursor.inputs = inputs.bytes + tile.first * inputs.stride;
        if (k_tile.first == 0) {
          __builtin_memset(tile.sums, 0, sizeof(float) * kTileOutputs * count);
        }
        tile_of<kBits>(count)(tile);
        if (last) write_outputs(tile, count);
      }
    }
  }

  template <int kBits>
  static void run_blocks(const SuperPanel& panel) {
    auto& scratch = *reinterpret_cast<Scratch*>(panel.scratch);
    const std::int64_t padded = (panel.columns + kSuperPad - 1) / kSuperPad * kSuperPad;
    const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
    KTile k_tile;
    for (std::int64_t b = 0; b < blocks; ++b) {
      k_tile.token = panel.tokens * b / blocks;
      k_tile.tokens = panel.tokens * (b + 1) / blocks - k_tile.token;
      for (k_tile.first = 0; k_tile.first < padded; k_tile.first += kColumns) {
        const std::int64_t left = padded - k_tile.first;
        k_tile.columns = left < kColumns ? left : kColumns;
        run_k_tile<kBits>(panel, k_tile, left <= kColumns, scratch);
      }
    }
  }

  static void run(const SuperPanel& panel) noexcept {
    (panel.bits == 4 ? run_blocks<4> : panel.bits == 5 ? run_blocks<5> : run_blocks<6>)(panel);
  }
};

}  // namespace
}  // namespace leq::cpu
