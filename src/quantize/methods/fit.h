// Range primitives: the scale of one group of weights by several rules, and the ranges of a whole
// weight, rounded to storable values before any code is computed with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/methods/method.h"

namespace leq {

// Limits of integer codes: symmetric schemes [-127, 127] at 8 bits, else [-2^(b-1), 2^(b-1) - 1];
// with a zero point [0, 2^b - 1].
struct CodeLimits {
  int low = 0, high = 0;
};
CodeLimits code_limits(const QuantScheme& scheme);

// The range that a rule finds for the values x of one group, before rounding: value = scale * code,
// or with a zero point scale * (code - z) where z = round(-low / scale).
struct Range {
  float scale = 0;
  float low = 0;  // <= 0; 0 without a zero point
};

// A rule. `x` has at least one finite value, `importance` the weight >= 0 of each squared error
// (read by weighted rules only), `bits` is 2, 3, 4 or 8.
using RangeRule = Range (*)(std::span<const float> x, std::span<const float> importance, int bits);

// scale = max |x| / (2^(b-1) - 1).
Range fit_absmax(std::span<const float> x, std::span<const float> importance, int bits);
// Below 8 bits the first x of largest |x| becomes the extra negative level: scale = x / -2^(b-1),
// which may be negative. 8 bits: as fit_absmax.
Range fit_signed(std::span<const float> x, std::span<const float> importance, int bits);
// Zero point: low = min(0, min x), high = max(0, max x), scale = (high - low) / (2^b - 1).
Range fit_minmax(std::span<const float> x, std::span<const float> importance, int bits);
// Symmetric codes of (nearly) least sum w (x - s l)^2: 19 scales around each of the two that map
// the largest |x| to the lowest or the highest level; for the codes l of each the best scale is sum
// w x l / sum w l^2; then single codes move by one as long as the error falls. (The idea is that of
// llama.cpp's importance matrix.)
Range fit_weighted(std::span<const float> x, std::span<const float> importance, int bits);
// The same with a zero point: five zero points around that of fit_minmax, 19 scales for each.
Range fit_weighted_zero(std::span<const float> x, std::span<const float> importance, int bits);

// Ranges of a weight [N][K] in storable values, before codes are chosen.
struct Ranges {
  std::int64_t group = 0;           // columns that share a scale; K where a row does
  std::int64_t per_row = 0;         // G = ceil(K / group)
  std::vector<float> scales;        // [N][G]
  std::vector<float> divisors;      // [N][G] the scale; infinity where all codes have value 0
  std::vector<std::uint8_t> zeros;  // [N][G] of schemes with a zero point, else empty
  float scale_mul = 1.0f;           // of f16 group scales, else 1
  CodeLimits limits;

  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * per_row + column / group);
  }
  int zero(std::size_t at) const { return zeros.empty() ? 0 : zeros[at]; }
};

// code = clip(round_half_even(x / s) + z), an f32 division (docs/leq-format.md). Clipping before
// rounding is equivalent, because the limits are integers.
inline int nearest_code(float x, float divisor, int zero, CodeLimits limits) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
  const auto low = static_cast<float>(limits.low - zero);
  const auto high = static_cast<float>(limits.high - zero);
  const float y = x / divisor;
  return static_cast<int>(((y < low ? low : y > high ? high : y) + kRounder) - kRounder) + zero;
}

// Throws Error naming the weight, row and column of a value that is not finite.
void require_finite(const MethodInput& input);

// Ranges of input.weight by `rule`, for integer schemes. `importance` [K] or empty = weights of 1.
// A group whose largest |x| (zero point: range) is below kSmallestAbsmax has scale 1 and codes of
// value 0; Scaling::tensor has the scale of the row with the largest one.
Ranges choose_ranges(const MethodInput& input, RangeRule rule,
                     std::span<const float> importance = {});
// Ranges of least squared error, weighted by input_importance:
// those of method rtn. Plain ranges for one scale per tensor:
// a search over all its rows at once gains nothing at 8 bits.
Ranges weighted_ranges(const MethodInput& input);
// Ranges from the largest values (zero point: minimum and maximum): fit_signed or fit_minmax.
Ranges plain_ranges(const MethodInput& input);
// The nearest code of every weight for these ranges.
ChosenCodes nearest_codes(const MethodInput& input, Ranges ranges);

// Weights of squared errors by input channel: the mean square of the inputs, [K]; empty without
// statistics or where all inputs were 0.
std::vector<float> input_importance(const MethodInput& input);

// Calls body(row) for every row, in the pool where there is one.
template <class Body>
void for_rows(ThreadPool* pool, std::int64_t rows, const Body& body) {
  if (pool == nullptr) {
    for (std::int64_t row = 0; row < rows; ++row) body(row);
    return;
  }
  pool->run(rows, [&body](std::int64_t row, int) { body(row); });
}

}  // namespace leq
