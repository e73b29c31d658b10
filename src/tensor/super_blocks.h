// The k types of GGUF as schemes: codes of 4, 5 or 6 bits whose scales are small integers times the
// f16 numbers of a superblock of 256 columns. With the code u, q4_k and q5_k have
// value = (d * s) * u - (dmin * m), s and m being bytes per 32 columns; q6_k has
// value = d * s * (u - 32), s being a signed byte per 16 columns.
#pragma once

#include <cstdint>

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

}  // namespace leq
