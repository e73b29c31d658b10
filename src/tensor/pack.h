// Quantize, pack and unpack the rows of a weight: the specification in code. Plain loops in the
// arithmetic of decisions.md 3; every kernel and device must read and produce these bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/weight_layout.h"

namespace leq {

// The planes of one packed weight, in memory.
struct PackedWeight {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float scale_mul = 1.0f;
  std::vector<std::byte> codes, scales, zeros, sums;

  WeightView view() const;
};

// A group (row, tensor) whose largest |x| is below this has codes of value 0 and scale 1.
inline constexpr float kSmallestAbsmax = 1e-12f;

// Rounds `values` [rows][columns] f32 to the nearest codes (method absmax) and packs them. Float
// schemes are narrowed to nearest even. Throws Error naming `name`, row and column of a value that
// is not finite, or of one that f16 cannot hold.
PackedWeight pack_weight(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                         const QuantScheme& scheme, ActKind act, std::string_view name);

// The same planes from codes and scales that a method has chosen.
//   codes [rows][columns], in the scheme's integer range;
//   scales: [rows] for row and tensor scaling, [rows][ceil(columns/g)] for groups, already rounded
//   to what the file can hold (see round_group_scales).
PackedWeight pack_codes(std::span<const std::int8_t> codes, std::span<const float> scales,
                        float scale_mul, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act);

// Rounds the group scales of a tensor to f16 times a power of two, in place; returns that power,
// scale_mul = 2^(e - 15) with e the frexp exponent of the largest |s|. A group below
// kSmallestAbsmax, or whose scale would round to 0, gets the stored scale 1 (scale_mul here): the
// caller gives it codes of value 0.
float round_group_scales(std::span<float> scales, std::span<const float> group_absmax);

// Row `row` of a stored weight as f32 [columns].
void unpack_row(const WeightView& weight, std::int64_t row, std::span<float> out);

// One code as a signed integer (symmetric schemes), for tests and tools.
int code_at(const WeightView& weight, std::int64_t row, std::int64_t column);
// The scale of a code, as f32.
float scale_at(const WeightView& weight, std::int64_t row, std::int64_t column);

}  // namespace leq
