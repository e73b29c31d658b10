// The integer codes of a stored weight and their scales, unpacked from the file's panels for
// export.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/weight_layout.h"

namespace leq {

struct WeightCodes {
  bool is_signed = true;            // false: codes of `bits` bits with zero points
  int bits = 8;                     // 4 or 8; codes of 2 and 3 bits are stored as 4
  std::int64_t rows = 0;            // N
  std::int64_t columns = 0;         // K
  std::int64_t block = 0;           // columns per scale; K if a row has one scale
  std::int64_t blocks = 0;          // per row, ceil(K / block)
  std::vector<std::int16_t> codes;  // [N][K]
  std::vector<float> scales;        // [N][blocks]
  std::vector<std::uint8_t> zeros;  // [N][blocks], empty if is_signed

  bool by_row() const { return blocks == 1 && block == columns; }
  bool one_scale() const;  // whether all scales are equal
};

// Whether weight_codes supports a weight: int and uint types with scales per row or per group.
bool has_weight_codes(const WeightView& weight);
WeightCodes weight_codes(const WeightView& weight);
// All dequantized values as f32 [N][K].
std::vector<float> weight_floats(const WeightView& weight);

// Transposes [rows][columns] -> [columns][rows]
template <class T>
std::vector<T> transposed(const std::vector<T>& values, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kTile = 64;
  std::vector<T> out(values.size());
  for (std::int64_t first = 0; first < rows; first += kTile) {
    const std::int64_t last = first + kTile < rows ? first + kTile : rows;
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = first; r < last; ++r) {
        out[static_cast<std::size_t>(c * rows + r)] =
            values[static_cast<std::size_t>(r * columns + c)];
      }
    }
  }
  return out;
}

// Codes as bytes; 4-bit codes are packed two per byte, the first in the low half.
std::vector<std::byte> code_bytes(const std::vector<std::int16_t>& codes, int bits);

}  // namespace leq
