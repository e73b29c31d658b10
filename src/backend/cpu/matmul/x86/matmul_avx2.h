// Shared by the AVX2 matmul files: the end of a group and of a row, for eight outputs at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/x86/fetch_ahead.h"

namespace leq::cpu {
namespace {

inline __m256i load_bytes(const std::uint8_t* bytes) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
}

// Prefetches into L2 the panel that this thread will probably multiply next. Prefetches are spread
// over the passes of the first tokens over this panel, because memory was idle in later passes when
// all prefetches were in the first pass.
class NextPanel {
 public:
  NextPanel(const IntPanel& panel, std::int64_t token) {
    const bool fetches = token == 0 && panel.next_codes != nullptr;
    line_ = fetches ? panel.next_codes : panel.codes;
    step_ = fetches ? 64 : 0;
    end_ = line_ + (fetches ? panel.next_bytes : 1);
  }
  void fetch(int lines) {
    for (int line = 0; line < lines && line_ < end_; ++line, line_ += step_) {
      _mm_prefetch(reinterpret_cast<const char*>(line_), _MM_HINT_T1);
    }
  }

 private:
  const std::uint8_t* line_;
  const std::uint8_t* end_;
  // Bytes between prefetches: 64, or 0 to prefetch the same line again. It is not a constant,
  // because g++ 12 would then unroll the loop, which makes 4-bit weights 10 % slower for one token.
  std::int64_t step_;
};

inline int load_quad(const std::uint8_t* codes) {
  int quad;
  __builtin_memcpy(&quad, codes, sizeof quad);
  return quad;
}

// Start values of the sums of a group of unsigned codes, for 8 outputs of one token:
// -zero point * the sum of the token's codes.
inline __m256i unsigned_start(const IntPanel& panel, std::int64_t token, std::int64_t output,
                              std::int64_t group) {
  const int sum = panel.token_sums[token * panel.token_sum_stride + group];
  if (panel.zeros == nullptr) return _mm256_set1_epi32(-panel.zero * sum);
  const std::uint8_t* zeros = panel.zeros + group * panel.zero_stride + output;
  const __m256i wide =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros)));
  return _mm256_mullo_epi32(wide, _mm256_set1_epi32(-sum));
}

// y = fma(f, weight scale * token scale, bias) for 8 outputs of one token.
inline void finish(const IntPanel& panel, std::int64_t token, std::int64_t output, __m256 f) {
  __m256 scale = _mm256_set1_ps(1.0f);
  if (panel.groups_a_token_scale == 0) {
    scale = _mm256_set1_ps(panel.token_scales[token * panel.token_scale_stride]);
  }
  if (panel.row_scales != nullptr) {
    scale = _mm256_mul_ps(scale, _mm256_loadu_ps(panel.row_scales + output));
  }
  f = panel.bias != nullptr ? _mm256_fmadd_ps(f, scale, _mm256_loadu_ps(panel.bias + output))
                            : _mm256_mul_ps(f, scale);
  _mm256_storeu_ps(panel.y + token * panel.y_stride + output, f);
}

// Weight scale * token scale of a group for 8 outputs; a side without group scales counts as 1.
inline __m256 group_scale(const IntPanel& panel, std::int64_t token, std::int64_t output,
                          std::int64_t group) {
  __m256 scale = _mm256_set1_ps(1.0f);
  if (panel.groups_a_token_scale != 0) {
    scale = _mm256_set1_ps(
        panel.token_scales[token * panel.token_scale_stride + group / panel.groups_a_token_scale]);
  }
  if (panel.group_scales == nullptr) return scale;
  const std::uint16_t* scales = panel.group_scales + group * 64 + output;
  const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  return _mm256_mul_ps(_mm256_mul_ps(wide, _mm256_set1_ps(panel.scale_mul)), scale);
}

}  // namespace
}  // namespace leq::cpu
