// Codes under superblock scales (q4_k, q5_k, q6_k) on x86, for the matmuls of many tokens: codes in
// bytes, and the numbers with which sums are folded.
//   L: Lanes256 or Lanes512
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kSuperPad = 128;   // inputs are padded to a multiple of it
constexpr std::int64_t kSubColumns = 32;  // columns that share a minimum

// Unpacks quad kQuad (0..7) of the columns from k on, for the outputs of a register, to one code
// per byte.
template <class L, int kBits, int kQuad>
inline __attribute__((always_inline)) typename L::Ints quad_codes(const SuperPanel& panel,
                                                                  std::int64_t k, int output) {
  const std::uint8_t* low = panel.codes + (k / 8 + kQuad / 2) * 256 + output * 4;
  const auto codes =
      L::both(L::template shifted < kQuad % 2 == 1 ? -4 : 0 > (L::load_ints(low)), L::repeat8(15));
  if constexpr (kBits == 4) return codes;
  constexpr int kHigh = kBits == 6 ? 2 : 1;
  constexpr int kLeft = 4 - kHigh * (kQuad % (8 / kHigh));  // shift of the bits to bit 4
  const std::uint8_t* plane = panel.high_codes + (k * kHigh / 32 + kQuad * kHigh / 8) * 256;
  const auto high = L::template shifted<kLeft>(L::load_ints(plane + output * 4));
  return L::either(codes, L::both(high, L::repeat8(((1 << kHigh) - 1) << 4)));
}

// The numbers with which the spans of a K tile of at most kColumns columns are folded. Minima, like
// the sums of inputs that they multiply, are pairs of 16-bit numbers, for two sub-blocks. A span
// has two pairs, whose minima are 0 outside the span.
template <std::int64_t kColumns>
struct alignas(64) SpanNumbers {
  float d[(kColumns + 255) / 256][64];
  float dmin[(kColumns + 255) / 256][64];
  std::int16_t minima[kColumns / kSubColumns][2][64][2];
};

// Reads the numbers of columns [column, column + columns), multiples of 128.
template <class L, bool kMinima, std::int64_t kColumns>
void read_numbers(const SuperPanel& panel, std::int64_t column, std::int64_t columns,
                  SpanNumbers<kColumns>& numbers) {
  const std::uint16_t* super = panel.super_scales + column / 256 * (kMinima ? 2 : 1) * 64;
  const auto read = [&](float* to) {
    for (int output = 0; output < 64; output += L::kOutputs, super += L::kOutputs) {
      L::store(to + output, L::load(super));
    }
  };
  for (std::int64_t k = 0; k < columns; k += 256) {
    read(numbers.d[k / 256]);
    if constexpr (kMinima) read(numbers.dmin[k / 256]);
  }
  if constexpr (!kMinima) return;
  __builtin_memset(numbers.minima, 0, sizeof numbers.minima[0] * (columns / panel.span));
  const std::uint8_t* sub = panel.sub_scales + column / kSubColumns * 128 + 64;
  for (std::int64_t k = 0; k < columns; k += kSubColumns, sub += 128) {
    const std::int64_t span = k / panel.span, pair = k / 64 - span * panel.span / 64;
    auto& to = numbers.minima[span][pair];
    for (int output = 0; output < 64; ++output) to[output][k / kSubColumns % 2] = sub[output];
  }
}

// Writes a token's pairs of sums of inputs over columns [column, column + columns).
inline void pair_sums(const SuperPanel& panel, std::int64_t token, std::int64_t column,
                      std::int64_t columns, std::int32_t* pairs) {
  const std::int32_t* sums =
      panel.token_sums + token * panel.token_sum_stride + column / kSubColumns;
  for (std::int64_t k = 0; k < columns; k += 128, sums += 4, pairs += 2) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sums));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(pairs), _mm_packs_epi32(four, four));
  }
}

}  // namespace
}  // namespace leq::cpu
