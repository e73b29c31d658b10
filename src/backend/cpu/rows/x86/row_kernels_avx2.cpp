// Row kernels with 256-bit registers.
#include "backend/cpu/rows/row_lanes.h"
#include "backend/cpu/rows/x86/floats_avx2.h"

namespace leq::cpu {
namespace {

// The 256 lanes of a norm's sum would fill 32 registers, twice as many as exist, so that each
// quarter of the lanes is summed in a separate pass over its columns.
struct Quarter {
  static constexpr int kRegisters = 8;
  __m256 sums[kRegisters];
};

// Calls step(sums of eight lanes, their columns, mask of valid columns) for the 64 lanes that begin
// at `first`.
template <class Step>
Quarter sum_quarter(const float* x, std::int64_t first, std::int64_t n, Step step) {
  constexpr std::int64_t kColumns = Quarter::kRegisters * Floats256::kLanes;
  __m256 sums[Quarter::kRegisters];
#pragma GCC unroll 8
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  std::int64_t k = first;
  for (; k + kColumns <= n; k += 4 * kColumns) {
#pragma GCC unroll 8
    for (int i = 0; i < Quarter::kRegisters; ++i) {
      sums[i] =
          step(sums[i], _mm256_loadu_ps(x + k + i * Floats256::kLanes), _mm256_set1_epi32(-1));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Quarter::kRegisters; ++i) {
    const std::int64_t left = n - k - i * Floats256::kLanes;
    if (left <= 0) break;
    const __m256i mask = Floats256::first_lanes(left);
    sums[i] = step(sums[i], Floats256::load(x + k + i * Floats256::kLanes, mask), mask);
  }
  return {{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]}};
}

Quarter operator+(const Quarter& a, const Quarter& b) {
  Quarter both;
#pragma GCC unroll 8
  for (int i = 0; i < Quarter::kRegisters; ++i) both.sums[i] = _mm256_add_ps(a.sums[i], b.sums[i]);
  return both;
}

// Adds lanes 128, 64, ... 1 apart; quarters beyond the last column would be +0 and are skipped.
template <class Step>
float norm_sum(const float* x, std::int64_t n, Step step) {
  Quarter all = sum_quarter(x, 0, n, step);
  if (n > 128) all = all + sum_quarter(x, 128, n, step);
  if (n > 64) {
    Quarter odd = sum_quarter(x, 64, n, step);
    if (n > 192) odd = odd + sum_quarter(x, 192, n, step);
    all = all + odd;
  }
  const auto& sums = all.sums;
  const __m256 low =
      _mm256_add_ps(_mm256_add_ps(sums[0], sums[4]), _mm256_add_ps(sums[2], sums[6]));
  const __m256 high =
      _mm256_add_ps(_mm256_add_ps(sums[1], sums[5]), _mm256_add_ps(sums[3], sums[7]));
  return add_lanes(low, high);
}

// The codes of 32 numbers are written by one store, because a load soon after several smaller
// stores stalls until these reach the cache. Bytes are summed as unsigned codes + 128.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const __m256 factor = _mm256_set1_ps(inv);
  const __m256 low = _mm256_set1_ps(-127.0f);
  const __m256 high = _mm256_set1_ps(127.0f);
  const auto rounded = [=](__m256 v) {
    const __m256 scaled = _mm256_mul_ps(v, factor);
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(scaled, low), high));
  };
  // Pack instructions interleave 16-byte parts of the registers; this restores the order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(offset));
  const auto packed = [=](__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(all, order);
  };
  const __m256i none = _mm256_setzero_si256(), flip = _mm256_set1_epi8(-128);
  __m256i sums = none, last_sums = none;
  std::int64_t first = 0;
  for (; first + 32 <= n; first += 32) {
    const auto eight = [&](int i) { return rounded(_mm256_loadu_ps(x + first + 8 * i)); };
    const __m256i all = packed(eight(0), eight(1), eight(2), eight(3));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + first), _mm256_add_epi8(all, shift));
    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_xor_si256(all, flip), none));
  }
  for_registers<Floats256>(n - first, [&](std::int64_t k, auto lanes) {
    const __m256i code = rounded(lanes.load(x + first + k));
    last_sums = _mm256_add_epi32(last_sums, code);
    const __m256i bytes = _mm256_add_epi8(packed(code, none, none, none), shift);
    const std::int64_t eight = _mm256_extract_epi64(bytes, 0), left = n - first - k;
    __builtin_memcpy(codes + first + k, &eight, static_cast<std::size_t>(left < 8 ? left : 8));
  });
  alignas(32) std::int64_t wide[4];
  alignas(32) std::int32_t narrow[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(wide), sums);
  _mm256_store_si256(reinterpret_cast<__m256i*>(narrow), last_sums);
  std::int64_t sum = -128 * first;
  for (const std::int64_t part : wide) sum += part;
  for (const std::int32_t part : narrow) sum += part;
  return static_cast<std::int32_t>(sum);
}

struct Rows256 : Floats256 {
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  template <class Step>
  static float norm_sum(const float* x, std::int64_t n, Step step) {
    return cpu::norm_sum(x, n, step);
  }
  static std::uint32_t most_of(Words words) {
    std::uint32_t most = 0;
    for (int lane = 0; lane < kLanes; ++lane) most = words[lane] > most ? words[lane] : most;
    return most;
  }
  static constexpr auto quantize = cpu::quantize;
};

}  // namespace

const RowKernels& row_kernels_avx2() { return kRowKernels<Rows256>; }

}  // namespace leq::cpu
