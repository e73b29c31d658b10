// Ranges: rules for the scale of one group of weights, and the ranges of a whole weight. Scales are
// rounded to storable values before any code is computed with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/methods/method.h"

namespace leq {

// Limits of b-bit integer codes. Symmetric schemes: [-127, 127] at 8 bits, otherwise [-2^(b-1),
// 2^(b-1) - 1]. With a zero point: [0, 2^b - 1].
struct CodeLimits {
  int low = 0, high = 0;
};
CodeLimits code_limits(const QuantScheme& scheme);

// The range that a rule chooses for the values x of one group, before rounding:
// value = scale * code or, with a zero point z = round(-low / scale), value = scale * (code - z).
struct Range {
  float scale = 0;
  float low = 0;  // <= 0; without a zero point always 0
};

// A rule. `x` has at least one finite value. `importance` is the weight (>= 0) of each squared
// error, which only weighted rules read. `bits` is 2, 3, 4 or 8.
using RangeRule = Range (*)(std::span<const float> x, std::span<const float> importance, int bits);

// scale = max |x| / (2^(b-1) - 1), without zero point.
Range fit_absmax(std::span<const float> x, std::span<const float> importance, int bits);
// Below 8 bits, the first x of largest |x| gets the additional negative level:
// scale = x / -2^(b-1), which may be negative. With 8 bits the result is that of fit_absmax.
Range fit_signed(std::span<const float> x, std::span<const float> importance, int bits);
// With zero point: low = min(0, min x), high = max(0, max x), scale = (high - low) / (2^b - 1).
Range fit_minmax(std::span<const float> x, std::span<const float> importance, int bits);
// Symmetric codes with (nearly) the least sum w (x - s l)^2. Tries 19 scales around each of the two
// that map the largest |x| to the lowest or highest level. For the codes l of each, the best scale
// is sum w x l / sum w l^2. Finally single codes change by one as long as the error decreases. (The
// idea is that of llama.cpp's importance matrix.)
Range fit_weighted(std::span<const float> x, std::span<const float> importance, int bits);
// Like fit_weighted, but tries five zero points around fit_minmax's, with 19 scales for each.
Range fit_weighted_zero(std::span<const float> x, std::span<const float> importance, int bits);

// Ranges of a weight [N][K] as values that a file can store, before codes are chosen.
struct Ranges {
  std::int64_t group = 0;           // columns that share a scale; K with a scale per row
  std::int64_t per_row = 0;         // G = ceil(K / group)
  std::vector<float> scales;        // [N][G]
  std::vector<float> divisors;      // [N][G] scales; infinity if all codes have value 0
  std::vector<std::uint8_t> zeros;  // [N][G] if there are zero points, otherwise empty
  float scale_mul = 1.0f;           // common factor of f16 group scales, otherwise 1
  CodeLimits limits;

  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * per_row + column / group);
  }
  int zero(std::size_t at) const { return zeros.empty() ? 0 : zeros[at]; }
};

// code = clip(round_half_even(x / s) + z), with an f32 division (docs/leq-format.md). Clipping
// before rounding is equivalent, because the limits are integers.
inline int nearest_code(float x, float divisor, int zero, CodeLimits limits) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
  const auto low = static_cast<float>(limits.low - zero);
  const auto high = static_cast<float>(limits.high - zero);
  const float y = x / divisor;
  return static_cast<int>(((y < low ? low : y > high ? high : y) + kRounder) - kRounder) + zero;
}

// Throws Error naming weight, row and column if a value is not finite.
void require_finite(const MethodInput& input);

// Ranges of input.weight by `rule`, for integer schemes. `importance` is [K], or empty for weights
// of 1. A group whose largest |x| (zero point: range) is below kSmallestAbsmax gets scale 1 and
// codes of value 0; Scaling::tensor uses the scale of the row with the largest scale.
Ranges choose_ranges(const MethodInput& input, RangeRule rule,
                     std::span<const float> importance = {});
// Ranges of method rtn: least squared error, weighted by input_importance. With one scale
// per tensor returns plain ranges, because at 8 bits a search over all rows gains
// nothing.
Ranges weighted_ranges(const MethodInput& input);
// Ranges from the largest values (with zero point: minimum and maximum): fit_signed or fit_minmax.
Ranges plain_ranges(const MethodInput& input);
// Rounds every weight to its nearest code in these ranges.
ChosenCodes nearest_codes(const MethodInput& input, Ranges ranges);

// Weights of squared errors for each input channel: the mean squares of the inputs [K]. Empty
// without statistics or if all inputs were 0.
std::vector<float> input_importance(const MethodInput& input);

// Calls body(row) for every row, in the pool if there is one.
template <class Body>
void for_rows(ThreadPool* pool, std::int64_t rows, const Body& body) {
  if (pool == nullptr) {
    for (std::int64_t row = 0; row < rows; ++row) body(row);
    return;
  }
  pool->run(rows, [&body](std::int64_t row, int) { body(row); });
}

}  // namespace leq
