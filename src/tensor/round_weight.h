// Scales, zero points and codes of the integer schemes by rounding to nearest, for one tensor at a
// time, with the arithmetic of docs/leq-format.md ("how codes are chosen").
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/plane_writer.h"

namespace leq {

struct NamedMatrix {
  std::span<const float> values;  // [rows][columns]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::string_view name;

  const float* at(std::int64_t row, std::int64_t column) const {
    return values.data() + row * columns + column;
  }
};

// Throws an Error that names the tensor, and row and column of the value.
[[noreturn]] void fail_at(const NamedMatrix& matrix, std::int64_t index, std::string_view problem);
void require_finite(const NamedMatrix& matrix, std::int64_t first, std::int64_t count);

// The scales of a tensor as the file stores them, and the divisors of its values: the scales or,
// for a group without scale, infinity, so that every code of the group has value 0.
struct RoundedScales {
  std::int64_t group = 0;           // columns that share a scale
  std::int64_t per_row = 0;         // G, groups per row
  std::vector<float> values;        // [rows][G]
  std::vector<float> divisors;      // [rows][G]
  std::vector<std::uint8_t> zeros;  // [rows][G], uint only
  float scale_mul = 1.0f;
};

// Throws Error if a value is not finite.
RoundedScales choose_scales(const NamedMatrix& matrix, const QuantScheme& scheme);

// Codes to store for columns [first, first + 128) of a row; value 0 after the last column.
void round_block(const NamedMatrix& matrix, const RoundedScales& scales, const QuantScheme& scheme,
                 std::int64_t row, std::int64_t first, CodeBlock& codes);

}  // namespace leq
