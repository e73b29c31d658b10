// Puts codes and scales of a weight where the file wants them: panels of 64 rows, quads of columns.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/pack.h"

namespace leq {

inline constexpr std::int64_t kBlockColumns = 128;  // a whole number of every group
// Codes of 128 columns of a row as stored: int8 as signed bytes, fewer bits of int plus 2^(bits-1),
// all others as they are.
using CodeBlock = std::array<std::uint8_t, kBlockColumns>;

// All planes of a weight in memory, filled with what pads hold: codes of value 0, scales 1 (0 where
// a format has its own), zero points and sums 0. int8-tensor becomes int8.
PackedWeight empty_weight(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                          std::int64_t columns);

// The bytes of codes of value 0 (and zero point 0) in the first and in the second plane of codes.
struct ZeroBytes {
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};
ZeroBytes zero_bytes(const QuantScheme& scheme);

class PlaneWriter {
 public:
  // No float scheme; `weight` comes from empty_weight and outlives the writer.
  explicit PlaneWriter(PackedWeight& weight);

  // scales [rows][per_row] as f32, each exactly an f16 times scale_mul where they are of groups.
  void put_scales(std::span<const float> scales, std::int64_t per_row);
  // Zero points, or what else is a byte for each group: [rows][per_row].
  void put_zeros(std::span<const std::uint8_t> zeros, std::int64_t per_row);
  // Codes of columns [first, first + 128) of a row, of value 0 after the last column; adds the
  // sums of int8 codes. `first` is a multiple of 128; each block is put once.
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
