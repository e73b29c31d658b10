// Codes, scales and zero points of one weight [N][K] as chosen by a method, row-major. pack_codes
// stores them in panels.
#pragma once

#include <cstdint>
#include <vector>

namespace leq {

struct ChosenCodes {
  // [N][K]. int: signed, [-127, 127] at 8 bits, otherwise [-2^(b-1), 2^(b-1) - 1];
  // uint: [0, 2^b - 1]; nf4: index of the level; b1: bit 0 is the sign (1 = plus), bit 1 is the
  // sign of the residual in a salient column, and 1 for large values in another column.
  std::vector<std::int16_t> codes;
  // row: [N]; tensor: [N], all equal; group: [N][ceil(K/g)], each exactly an f16 times scale_mul
  // (round_group_scales). b1: [N][ceil(K/128)][8] f16 numbers: mean and size of the salient part,
  // of its residual, of the small and of the large values. nf4 (all from tensor/nf4.h):
  // [ceil(N/64)][ceil(K/256)][2], first value and step of the sizes of 64 rows x 4 blocks.
  std::vector<float> scales;
  float scale_mul = 1.0f;
  // uint: a zero point for each scale; b1: [K], 1 if the column is salient; nf4: [N][ceil(K/64)],
  // the size of each block; otherwise empty.
  std::vector<std::uint8_t> zeros;
};

// Lengths of `scales` and of `zeros`.
struct ChosenCounts {
  std::int64_t scales = 0;
  std::int64_t zeros = 0;
};

}  // namespace leq
