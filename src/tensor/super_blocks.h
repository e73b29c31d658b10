// The k types of GGUF as schemes: codes of 4, 5 or 6 bits whose scales are small integers times the
// f16 numbers of a superblock of 256 columns. With the code u, q4_k and q5_k have
// value = (d * s) * u - (dmin * m), s and m being bytes per 32 columns; q6_k has
// value = d * s * (u - 32), s being a signed byte per 16 columns.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/quant_scheme.h"

namespace leq {

inline constexpr std::int64_t kSuperColumns = 256;
inline constexpr int kSuper6Zero = 32;  // q6_k: the code of value 0

// Planes: scales f16 [Np/64][ceil(Kp/256)][supers][64] (d, then dmin), zeros u8
// [Np/64][Kp/sub_columns][subs][64] (s, then m).
struct SuperLayout {
  int supers = 2;        // f16 numbers per superblock
  int sub_columns = 32;  // columns that share a sub-scale
  int subs = 2;          // bytes per sub-block

  std::int64_t super_blocks(std::int64_t columns) const {
    return (columns + kSuperColumns - 1) / kSuperColumns;
  }
  std::int64_t sub_blocks(std::int64_t columns) const {
    return (columns + sub_columns - 1) / sub_columns;
  }
};

inline SuperLayout super_layout(CodeKind kind) {
  return kind == CodeKind::q6_k ? SuperLayout{1, 16, 1} : SuperLayout{};
}

// Chooses scales and minima of a superblock (tensor/super_blocks.h) with small squared error.

// One superblock of a row: its values, and where to store its scales and minima.
struct SuperPart {
  std::span<const float> x;        // at most 256 columns
  std::span<const float> weights;  // >= 0, weights of columns' squared errors; empty: all 1
  float* supers;                   // output: SuperLayout::supers numbers that f16 can hold
  std::uint8_t* subs;              // output: SuperLayout::subs bytes of each sub-block
};

// Tries about 20 scales for every sub-block. For the codes of each, scale and minimum with the
// least weighted squared error follow by linear regression (llama.cpp's idea); with the best pair
// codes are rounded once more. Scales, and then minima for the codes of the rounded scales, are
// rounded to whole multiples (bytes) of the superblock's numbers.
void fit_super(CodeKind kind, const SuperPart& part);

}  // namespace leq
