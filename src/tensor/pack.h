// Quantizes, packs and unpacks the rows of a weight. This is the specification in code: plain loops
// with the arithmetic of docs/leq-format.md. All kernels and devices must use the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/chosen_codes.h"
#include "tensor/weight_layout.h"

namespace leq {

// The planes of one packed weight in memory.
struct PackedWeight {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float scale_mul = 1.0f;
  std::vector<std::byte> codes, scales, zeros, sums;

  WeightView view() const;
};

// Rounds `values` [rows][columns] f32 to the nearest codes and packs them. int: scale by the
// largest |x| (method absmax); uint: by the range (method zeropoint); others: by their format.
// Float schemes round to nearest even. Throws Error naming `name`, row and column of a value that
// is not finite or that f16 cannot represent; and for formats whose codes a method must choose.
PackedWeight pack_weight(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                         const QuantScheme& scheme, ActKind act, std::string_view name);

// Packs codes, scales and zero points that a method has chosen. Group scales must be rounded to
// values that the file can store (round_group_scales). Throws Error if a count does not fit the
// shape or a code is outside the scheme's range.
PackedWeight pack_codes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act);

// Number of scales and zero points that a scheme has for a weight.
ChosenCounts chosen_counts(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns);

// Rounds the group scales of a tensor in place to f16 times a power of two. Returns this power,
// scale_mul = 2^(e - 15), where e is the frexp exponent of the largest |s|. A group below
// kSmallestAbsmax, or whose scale would round to 0, gets the stored scale 1 (here scale_mul), and
// the caller gives it codes of value 0. `group_absmax`: each group's max |x|, for uint its range.
float round_group_scales(std::span<float> scales, std::span<const float> group_absmax);
// Like round_group_scales above, for some rows of a tensor. The caller passes the largest |s| of
// the whole tensor among groups not below kSmallestAbsmax, or 0 if there are none.
float round_group_scales(std::span<float> scales, std::span<const float> group_absmax,
                         float largest);
float largest_group_scale(std::span<const float> scales, std::span<const float> group_absmax);

// Row `row` of a stored weight as f32 [columns], or its columns [first, first + out.size()), where
// `first` is a multiple of 128.
void unpack_row(const WeightView& weight, std::int64_t row, std::span<float> out);
void unpack_columns(const WeightView& weight, std::int64_t row, std::int64_t first,
                    std::span<float> out) noexcept;

// One code, its scale as f32 and its zero point, for tests and tools. int: the signed number;
// otherwise the stored code, see ChosenCodes. scale_at throws Error for formats with more than one
// scale for a code (b1).
int code_at(const WeightView& weight, std::int64_t row, std::int64_t column);
float scale_at(const WeightView& weight, std::int64_t row, std::int64_t column);
int zero_at(const WeightView& weight, std::int64_t row, std::int64_t column);  // 0 except for uint

}  // namespace leq
