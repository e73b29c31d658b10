// AVX-512 VNNI's kernels, but integer matmuls of many tokens use AMX.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/amx_tiles.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

// Matmuls with groups on AMX. While the tiles multiply, the int32 sums of a group are stored in the
// first step of the next group and folded into f32 sums in the first step of the group after it.

// The sides that have group scales.
enum class Scales { weights, tokens, both };

constexpr std::int64_t kSmallestGroup = 16;
constexpr std::int64_t kKTileGroups = kKTileColumns / kSmallestGroup;
constexpr std::int64_t kKTileScales = kKTileGroups;  // most scales of a token

// Scales and offsets with which the groups of a K tile are folded, for each output of a panel.
struct alignas(64) KTileNumbers {
  float scales[kKTileGroups][64];
  std::int32_t offsets[kKTileGroups][64];
};

// Scratch of a block.
struct alignas(64) GroupScratch {
  float folded[kBlockTokens / kUnitTokens][2][kHalfNumbers];
  std::int32_t sums[kHalfNumbers];                    // sums of the group that is not folded yet
  KTileNumbers numbers[2];                            // of this K tile and of the preceding one
  float token_scales[2][kKTileScales][kBlockTokens];  // of these two K tiles
  std::uint8_t unpacked[kKTileColumns * 64];          // unpacked weights below 8 bits
};
static_assert(sizeof(GroupScratch) <= kIntScratchBytes);

// The destination of a group's folded sums of a half, and the numbers needed for folding.
struct Fold {
  float* folded = nullptr;        // [kHalfNumbers]; null: nothing to fold
  const float* scales = nullptr;  // [32], scales of the weights
  const std::int32_t* offsets = nullptr;
  // For the tokens of each tile: their scales in the group, and the first token's sum of inputs.
  const float* token_scales[2] = {nullptr, nullptr};
  const std::int32_t* token_sums[2] = {nullptr, nullptr};
};

// f = fma(float(c), weight scale * token scale, f) for one of a half's tiles of sums.
template <Signs kSigns, Scales kScales>
inline __attribute__((always_inline)) void fold_tile(const IntPanel& panel, const Fold& fold,
                                                     const std::int32_t* sums, int tile) {
  const __m512 by_weight = _mm512_load_ps(fold.scales + tile % 2 * 16);
  const __m512i offset = _mm512_load_si512(fold.offsets + tile % 2 * 16);
  const float* by_token = fold.token_scales[tile / 2];
  const std::int32_t* token_sums = fold.token_sums[tile / 2];
  // Read once, since the compiler must assume that the stores below change the panel.
  const std::int64_t sum_stride = panel.token_sum_stride;
  float* const folded = fold.folded + tile * kTileNumbers;
  sums += tile * kTileNumbers;
#pragma GCC unroll 16
  for (int row = 0; row < kTileTokens; ++row) {
    __m512i sum = _mm512_load_si512(sums + row * 16);
    if constexpr (kSigns == Signs::input_unsigned) sum = _mm512_add_epi32(sum, offset);
    if constexpr (kSigns == Signs::weight_unsigned) {
      // A negated zero point is in the lower half of its lane, whose upper half is 0, so that this
      // multiplies it by the lower half of the token's sum (at most 128 * 127).
      sum = _mm512_dpwssd_epi32(sum, offset, _mm512_set1_epi32(*token_sums));
      token_sums += sum_stride;
    }
    __m512 scale = by_weight;
    if constexpr (kScales != Scales::weights) {
      scale = _mm512_set1_ps(by_token[row]);
      if constexpr (kScales == Scales::both) scale = _mm512_mul_ps(by_weight, scale);
    }
    const __m512 f = _mm512_load_ps(folded + row * 16);
    _mm512_store_ps(folded + row * 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, f));
  }
}

// The last two groups: the sums of the older group are in memory, the sums of the newer in the
// tiles. Pointers are exchanged, because a copy would have to wait until all earlier tiles are
// stored.
struct Pipeline {
  Fold places[3];
  Fold* older = &places[0];
  Fold* newer = &places[1];
  Fold* now = &places[2];
};

template <Signs kSigns, Scales kScales>
void drain(const IntPanel& panel, const TokenBlock& block, const Pipeline& pipeline,
           std::int32_t* sums) {
  const auto fold = [&](const Fold& group) {
    if (group.folded == nullptr) return;
    for (int tile = 0; tile < 2 * block.tiles(); ++tile) {
      fold_tile<kSigns, kScales>(panel, group, sums, tile);
    }
  };
  fold(*pipeline.older);
  store_sums(sums);
  fold(*pipeline.newer);
}

// A range of groups of a panel's columns.
struct KTile {
  const std::uint8_t* codes = nullptr;  // byte codes at the first column
  std::int64_t group = 0;               // first group
  std::int64_t groups = 0;
  const std::uint8_t* next = nullptr;  // bytes from which the next K tile is made
  std::int64_t next_bytes = 0;
};

// Reads the scales of groups and the corrections of their sums. For signed weights (inputs q + 128)
// a correction is -128 * the weights' sum; for unsigned weights -zero point, times a token's sum.
template <Signs kSigns>
void read_numbers(const IntPanel& panel, const KTile& k_tile, KTileNumbers& numbers) {
  for (std::int64_t g = 0; g < k_tile.groups; ++g) {
    const std::int64_t group = k_tile.group + g;
    for (int output = 0; output < 64; output += 16) {
      if (panel.group_scales != nullptr) {
        _mm512_store_ps(numbers.scales[g] + output, weight_scale(panel, group, output));
      }
      if constexpr (kSigns == Signs::input_unsigned) {
        const std::int16_t* sums = panel.group_sums + group * 64 + output;
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
        _mm512_store_si512(numbers.offsets[g] + output, start_value(_mm512_cvtepi16_epi32(half)));
      } else if constexpr (kSigns == Signs::weight_unsigned) {
        const __m512i zeros = zero_points(panel, group, output);
        _mm512_store_si512(numbers.offsets[g] + output,
                           _mm512_maskz_sub_epi16(0x55555555, _mm512_setzero_si512(), zeros));
      }
    }
  }
}

// Collects the scales of a block's tokens in a K tile contiguously. If they were read in place,
// from a line per token, they would evict other data from L1.
inline void read_token_scales(const IntPanel& panel, const TokenBlock& block, const KTile& k_tile,
                              float (&scales)[kKTileScales][kBlockTokens]) {
  const std::int64_t first = k_tile.group / panel.groups_a_token_scale;
  const std::int64_t last = (k_tile.group + k_tile.groups - 1) / panel.groups_a_token_scale;
  const std::int64_t stride = panel.token_scale_stride;
  const float* from = panel.token_scales + block.token * stride + first;
  std::int64_t token = 0;
  // Groups of 128 columns: two scales per token.
  for (; first + 1 == last && token + 4 <= block.tokens; token += 4, from += 4 * stride) {
    const auto pair = [&](std::int64_t row) {
      return _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(from + row * stride)));
    };
    const __m128 two = _mm_movelh_ps(pair(0), pair(1)), more = _mm_movelh_ps(pair(2), pair(3));
    _mm_storeu_ps(scales[0] + token, _mm_shuffle_ps(two, more, _MM_SHUFFLE(2, 0, 2, 0)));
    _mm_storeu_ps(scales[1] + token, _mm_shuffle_ps(two, more, _MM_SHUFFLE(3, 1, 3, 1)));
  }
  for (; token < block.tokens; ++token, from += stride) {
    for (std::int64_t i = first; i <= last; ++i) scales[i - first][token] = from[i - first];
  }
}

// Multiplies a K tile of groups of S steps for all units of a block, with T tiles of tokens each.
template <Signs kSigns, Scales kScales, int S, int T>
void multiply_k_tile(const IntPanel& panel, const TokenBlock& block, const KTile& k_tile,
                     Pipeline& pipeline) {
  auto& scratch = *reinterpret_cast<GroupScratch*>(panel.scratch);
  std::int32_t* const sums = scratch.sums;
  const std::int64_t place = k_tile.group / (kKTileColumns / panel.group) % 2;
  KTileNumbers& numbers = scratch.numbers[place];
  read_numbers<kSigns>(panel, k_tile, numbers);
  auto& token_scales = scratch.token_scales[place];
  if constexpr (kScales != Scales::weights) read_token_scales(panel, block, k_tile, token_scales);
  const std::int64_t stride = panel.input_stride;
  const std::int64_t step = panel.group / S;
  FetchAhead ahead(k_tile.next, k_tile.next_bytes, block.halves() * k_tile.groups * S);
  for (std::int64_t half = 0; half < block.halves(); ++half) {
    const std::int64_t token[2] = {block.first(half / 2, 0), block.first(half / 2, 1)};
    const std::uint8_t* inputs = panel.inputs + k_tile.group * panel.group;
    const std::uint8_t* x0 = inputs + token[0] * stride;
    const std::uint8_t* x1 = inputs + token[1] * stride;
    const std::uint8_t* w = k_tile.codes + half % 2 * 128;
    const std::int64_t output = half % 2 * kUnitOutputs;
    float* const folded = scratch.folded[half / 2][half % 2];
    if (k_tile.group == 0) std::memset(folded, 0, 2 * T * kTileNumbers * sizeof(float));
    for (std::int64_t g = 0; g < k_tile.groups; ++g) {
      Fold& now = *pipeline.now;
      now.folded = folded;
      now.scales = numbers.scales[g] + output;
      now.offsets = numbers.offsets[g] + output;
      for (int tile = 0; tile < 2; ++tile) {
        if constexpr (kScales != Scales::weights) {
          now.token_scales[tile] =
              token_scales[g / panel.groups_a_token_scale] + (token[tile] - block.token);
        }
        if constexpr (kSigns == Signs::weight_unsigned) {
          now.token_sums[tile] =
              panel.token_sums + token[tile] * panel.token_sum_stride + k_tile.group + g;
        }
      }
      const Fold& older = *pipeline.older;
      ahead.step();
      load_tiles<T>(x0, x1, stride, w);
      store_and_begin<kSigns, T>(
          sums, [&](int tile) __attribute__((always_inline)) {
            if (older.folded != nullptr) fold_tile<kSigns, kScales>(panel, older, sums, tile);
          });
      x0 += step, x1 += step, w += step * 64;
#pragma GCC unroll 2
      for (int i = 1; i < S; ++i, x0 += step, x1 += step, w += step * 64) {
        ahead.step();
        load_tiles<T>(x0, x1, stride, w);
        multiply_step<kSigns, T>();
      }
      pipeline.now = pipeline.older;
      pipeline.older = pipeline.newer;
      pipeline.newer = &now;
    }
  }
}

// Multiplies a whole panel. codes_of(first column, columns, k_tile) sets the K tile's codes.
template <Signs kSigns, Scales kScales, class CodesOf>
void run_scaled(const IntPanel& panel, CodesOf codes_of) {
  const std::int64_t groups = (panel.columns + panel.group - 1) / panel.group;
  const std::int64_t most = kKTileColumns / panel.group;
  auto& scratch = *reinterpret_cast<GroupScratch*>(panel.scratch);
  FinishNumbers finish;
  read_finish_numbers(panel, finish);
  const Tiles tiles(panel.group < 64 ? panel.group : 64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    Pipeline pipeline;
    for (std::int64_t group = 0; group < groups; group += most) {
      KTile k_tile;
      k_tile.group = group;
      k_tile.groups = groups - group < most ? groups - group : most;
      codes_of(group * panel.group, k_tile.groups * panel.group, k_tile);
      using Multiply = void (*)(const IntPanel&, const TokenBlock&, const KTile&, Pipeline&);
      constexpr Multiply kMultiply[2][2] = {
          {multiply_k_tile<kSigns, kScales, 1, 1>, multiply_k_tile<kSigns, kScales, 1, 2>},
          {multiply_k_tile<kSigns, kScales, 2, 1>, multiply_k_tile<kSigns, kScales, 2, 2>}};
      kMultiply[panel.group > 64][block.tiles() - 1](panel, block, k_tile, pipeline);
    }
    drain<kSigns, kScales>(panel, block, pipeline, scratch.sums);
    const float* folded = scratch.folded[0][0];
    for (std::int64_t half = 0; half < block.halves(); ++half, folded += kHalfNumbers) {
      finish_half(
          panel, finish, block,
          half, [&](std::int64_t, int, std::int64_t at) __attribute__((always_inline)) {
            return _mm512_load_ps(folded + at);
          });
    }
  });
}

template <Signs kSigns, class CodesOf>
void run_groups(const IntPanel& panel, CodesOf codes_of) {
  if (panel.groups_a_token_scale == 0) {
    run_scaled<kSigns, Scales::weights>(panel, codes_of);
  } else if (panel.group_scales == nullptr) {
    run_scaled<kSigns, Scales::tokens>(panel, codes_of);
  } else {
    run_scaled<kSigns, Scales::both>(panel, codes_of);
  }
}

// int8 and uint8 weights.
template <Signs kSigns>
void run_bytes(const IntPanel& panel) {
  run_groups<kSigns>(panel, [&](std::int64_t first, std::int64_t columns, KTile& k_tile) {
    k_tile.codes = panel.codes + first * 64;
    k_tile.next = k_tile.codes + columns * 64;
    k_tile.next_bytes = columns * 64;
    if (first + columns >= panel.columns) {
      k_tile.next = panel.next_codes;
      k_tile.next_bytes = panel.next_bytes < columns * 64 ? panel.next_bytes : columns * 64;
    }
  });
}

// Group-scaled weights of fewer than 8 bits times int8 activations. A K tile of the panel is
// unpacked to signed bytes, code - zero point, which all tokens of a block share.

// The zero points of a group; each is in all four bytes of its output.
ByteZeros byte_zeros(const IntPanel& panel, std::int64_t group) {
  ByteZeros bytes;
  for (int j = 0; j < 4; ++j) {
    bytes.zeros[j] =
        _mm512_mullo_epi32(zero_points(panel, group, 16 * j), _mm512_set1_epi32(0x01010101));
  }
  return bytes;
}

template <class Bits>
void run_bits(const IntPanel& panel) {
  std::uint8_t* const codes = reinterpret_cast<GroupScratch*>(panel.scratch)->unpacked;
  run_groups<Signs::none_unsigned>(
      panel, [&](std::int64_t first, std::int64_t columns, KTile& k_tile) {
        const std::int64_t of_zeros = panel.zeros == nullptr ? columns : panel.group;
        for (std::int64_t k = 0; k < columns; k += of_zeros) {
          unpack<Bits>(panel, first + k, of_zeros, byte_zeros(panel, (first + k) / panel.group),
                       codes + k * 64);
        }
        stored_for_tiles(codes);
        const Planes next = planes_at<Bits>(panel, first + columns);
        k_tile.codes = codes;
        k_tile.next = next.low;
        k_tile.next_bytes = columns * 8 * Bits::kLowBits;
      });
}

// int8 and uint8 weights times int8 activations, if neither side has groups: one int32 sum for the
// whole row, kept in scratch between K tiles.

// Panels of up to so many columns are multiplied as a whole, one half after another, so that no sum
// is loaded back into a tile. Longer panels would be read from L2 too often, so that all tokens are
// multiplied by short K tiles, whose weights remain in L1.
constexpr std::int64_t kWholeColumns = 1024;
constexpr std::int64_t kFewHalves = 4;  // so few are memory-bound: short K tiles arrive sooner
std::int64_t k_tile_columns(std::int64_t columns, std::int64_t halves) {
  return columns <= kWholeColumns && halves > kFewHalves ? columns : kKTileColumns;
}

// A panel and a block of its tokens. Units are processed in halves: half 2 u + h has the 32 tokens
// of unit u and the 32 outputs that begin at 32 h.
template <bool kUnsigned>
struct Block {
  const IntPanel& panel;
  const TokenBlock& tokens;
  std::int32_t* const sums;  // [halves][kHalfNumbers]
  const FinishNumbers& numbers;
  std::int32_t* before;  // where the tiles' current sums will be stored
  FetchAhead ahead = {};

  // Finishes a half whose sums are in memory. The sums lack -128 * the weights' sum for signed
  // weights, whose inputs are q + 128, or -zero point * the inputs' sum for unsigned weights.
  void finish(std::int64_t half) const {
    const std::int32_t* const sum = sums + half * kHalfNumbers;
    const int output = static_cast<int>(half % 2 * kUnitOutputs);
    __m512i offset[2];
    for (int j = 0; j < 2; ++j) {
      offset[j] = kUnsigned ? zero_points(panel, 0, output + 16 * j)
                            : start_value(_mm512_loadu_si512(panel.row_sums + output + 16 * j));
    }
    finish_half(
        panel, numbers, tokens,
        half, [&](std::int64_t token, int j, std::int64_t at) __attribute__((always_inline)) {
          __m512i lacking = offset[j];
          if constexpr (kUnsigned) {
            const int inputs = panel.token_sums[token * panel.token_sum_stride];
            lacking = _mm512_mullo_epi32(lacking, _mm512_set1_epi32(-inputs));
          }
          return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(sum + at), lacking));
        });
  }

  // Adds columns [first, first + columns) to the sums of a half, with T tiles of tokens.
  template <int T>
  void add_k_tile(std::int64_t half, std::int64_t first, std::int64_t columns) {
    constexpr Signs kSigns = kUnsigned ? Signs::weight_unsigned : Signs::input_unsigned;
    const std::int64_t stride = panel.input_stride;
    const std::uint8_t* w = panel.codes + first * 64 + half % 2 * 128;
    const std::uint8_t* x0 = panel.inputs + first + tokens.first(half / 2, 0) * stride;
    const std::uint8_t* x1 = panel.inputs + first + tokens.first(half / 2, 1) * stride;
    std::int32_t* const now = sums + half * kHalfNumbers;
    ahead.step();
    load_tiles<T>(x0, x1, stride, w);
    if (first == 0) {
      store_and_begin<kSigns, T>(before, [](int) {});
    } else {
      store_and_continue<kSigns, T>(before, now);
    }
    before = now;
    for (std::int64_t k = 64; k < columns; k += 64) {
      x0 += 64, x1 += 64, w += 64 * 64;
      ahead.step();
      load_tiles<T>(x0, x1, stride, w);
      multiply_step<kSigns, T>();
    }
  }

  // Prefetches the following K tile: the next columns, or the first columns of the next panel. (128
  // KB ahead is faster for a matrix alone, but slower in a model.)
  FetchAhead fetch_next(std::int64_t first, std::int64_t columns, std::int64_t steps) const {
    const std::int64_t bytes = columns * 64;
    if (first + columns < panel.columns) {
      return {panel.codes + first * 64 + bytes, bytes, steps};
    }
    return {panel.next_codes, panel.next_bytes < bytes ? panel.next_bytes : bytes, steps};
  }

  // Not inlined, so that no register is spilled for what the caller holds.
  template <int T>
  __attribute__((noinline)) void run() {
    const std::int64_t columns = (panel.columns + 63) / 64 * 64;
    const std::int64_t halves = tokens.halves();
    const std::int64_t most = k_tile_columns(columns, halves);
    for (std::int64_t k = 0; k < columns; k += most) {
      const std::int64_t k_tile = columns - k < most ? columns - k : most;
      ahead = fetch_next(k, k_tile, halves * k_tile / 64);
      for (std::int64_t half = 0; half < halves; ++half) {
        add_k_tile<T>(half, k, k_tile);
        // The preceding half's sums have been stored; they are finished while the tiles multiply.
        if (k + k_tile == columns && half > 0) finish(half - 1);
      }
    }
    store_sums(before);
    finish(halves - 1);
  }
};

template <bool kUnsigned>
void run_rows(const IntPanel& panel) {
  auto* const sums = reinterpret_cast<std::int32_t*>(panel.scratch);
  FinishNumbers numbers;
  read_finish_numbers(panel, numbers);
  const Tiles tiles(64);
  for_each_block(panel.tokens, [&](const TokenBlock& block) {
    // The first step stores undefined tiles to the block's own sums, which are overwritten later.
    Block<kUnsigned> work{panel, block, sums, numbers, sums};
    block.tiles() == 1 ? work.template run<1>() : work.template run<2>();
  });
}

// Few tokens do not fill a tile.
template <auto kKernel, void (*kMany)(const IntPanel&)>
void by_token_count(const IntPanel& panel) noexcept {
  (panel.tokens < kTileTokens ? level_avx512vnni().matmul->*kKernel : kMany)(panel);
}

MatmulKernels matmuls() {
  using Kernels = MatmulKernels;
  MatmulKernels kernels = *level_avx512vnni().matmul;  // of floats
  kernels.isa = Isa::avx512amx;
  kernels.int8_rows = by_token_count<&Kernels::int8_rows, run_rows<false>>;
  kernels.int8_groups = by_token_count<&Kernels::int8_groups, run_bytes<Signs::input_unsigned>>;
  kernels.uint8_rows = by_token_count<&Kernels::uint8_rows, run_rows<true>>;
  kernels.uint8_groups = by_token_count<&Kernels::uint8_groups, run_bytes<Signs::weight_unsigned>>;
  kernels.bits4 = by_token_count<&Kernels::bits4, run_bits<Bits4>>;
  kernels.table4 = by_token_count<&Kernels::table4, run_bits<Table4>>;
  kernels.bits3 = by_token_count<&Kernels::bits3, run_bits<Bits3>>;
  kernels.bits2 = by_token_count<&Kernels::bits2, run_bits<Bits2>>;
  kernels.super = super_avx512amx;
  kernels.int_tile = "32x32";
  return kernels;
}

}  // namespace

const KernelLevel& level_avx512amx() {
  static const MatmulKernels kMatmuls = matmuls();
  const KernelLevel& vnni = level_avx512vnni();
  static const KernelLevel kLevel = {&kMatmuls, vnni.rows, vnni.attention, vnni.packed, vnni.delta};
  return kLevel;
}

}  // namespace leq::cpu
