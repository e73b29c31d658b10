// Stores codes and scales of a weight in the file's layout: panels of 64 rows, quads of columns.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/pack.h"

namespace leq {

inline constexpr std::int64_t kBlockColumns = 128;  // a multiple of every group
// Stored codes of 128 columns of a row: int8 as signed bytes, shorter int codes plus 2^(bits-1),
// all others unchanged.
using CodeBlock = std::array<std::uint8_t, kBlockColumns>;

// All planes of a weight in memory, filled with the values of padding: codes of value 0, scales 1
// (or 0 if the format has its own scales), zero points and sums 0. int8-tensor becomes int8.
PackedWeight empty_weight(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                          std::int64_t columns);

// Bytes of the two planes of codes that represent value 0 (and zero point 0).
struct ZeroBytes {
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};
ZeroBytes zero_bytes(const QuantScheme& scheme);

class PlaneWriter {
 public:
  // Not for float schemes. `weight` must come from empty_weight and outlive the writer.
  explicit PlaneWriter(PackedWeight& weight);

  // Stores scales [rows][per_row] given as f32; group scales must be an f16 times scale_mul.
  void put_scales(std::span<const float> scales, std::int64_t per_row);
  // Stores zero points or other numbers of one byte per group: [rows][per_row].
  void put_zeros(std::span<const std::uint8_t> zeros, std::int64_t per_row);
  // Stores the codes of columns [first, first + 128) of a row (value 0 after the last column) and
  // adds int8 codes to the sums. `first` is a multiple of 128; each block must be stored once.
  void put_codes(std::int64_t row, std::int64_t first, const CodeBlock& codes);

 private:
  void put_sums(std::int64_t row, std::int64_t first, const CodeBlock& codes);
  std::int64_t place_of(std::int64_t row, std::int64_t group) const;

  PackedWeight& weight_;
  std::int64_t padded_columns_;
  std::int64_t sum_group_;
  bool sums_are_per_row_;
  CodePlanes planes_;
};

}  // namespace leq
