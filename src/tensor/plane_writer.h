// Puts codes and scales of a weight where the file wants them: panels of 64 rows, quads of columns.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/pack.h"

namespace leq {

inline constexpr std::int64_t kBlockColumns = 128;  // a whole number of every group
using CodeBlock = std::array<std::int8_t, kBlockColumns>;

// All planes of a weight in memory, filled with what pads hold: codes of value 0, scales 1, sums 0.
// Throws Error where `scheme` is not supported. int8-tensor becomes int8.
PackedWeight empty_weight(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                          std::int64_t columns);

class PlaneWriter {
 public:
  // An integer scheme; `weight` comes from empty_weight and outlives the writer.
  explicit PlaneWriter(PackedWeight& weight);

  // scales [rows][per_row] as f32, each exactly an f16 times scale_mul where they are of groups.
  void put_scales(std::span<const float> scales, std::int64_t per_row);
  // Signed codes of columns [first, first + 128) of a row, 0 behind the last column; adds their
  // sums. `first` is a multiple of 128; each block is put once.
  void put_codes(std::int64_t row, std::int64_t first, const CodeBlock& codes);

 private:
  void put_sums(std::int64_t row, std::int64_t first, const CodeBlock& codes);

  PackedWeight& weight_;
  std::int64_t padded_columns_;
  std::int64_t sum_group_;
  bool sums_are_per_row_;
};

}  // namespace leq
