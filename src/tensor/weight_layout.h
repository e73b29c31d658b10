// Where the numbers of one stored weight [rows][columns] lie: the planes of docs/leq-format.md
// and their byte sizes. Floats lie row-major; integer codes lie in panels of 64 output rows,
// columns in quads, so that one 64-byte load feeds 16 rows of a dot product:
//   byte  = panel * 64*Kp*bits/8 + (k/4) / (8/bits) * 256 + (row % 64) * 4 + k % 4
//   shift = bits * ((k/4) % (8/bits))
// Codes of 3, 5 and 6 bits are a plane of their low 2 or 4 bits and, after it, a plane of the rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/act_kind.h"
#include "tensor/dtype.h"
#include "tensor/quant_scheme.h"

namespace leq {

inline constexpr std::int64_t kPanelRows = 64;
inline constexpr std::int64_t kPaddedColumns = 128;

// Bytes of each plane; 0 where the scheme has no such plane.
struct PlaneBytes {
  std::uint64_t codes = 0;
  std::uint64_t scales = 0;  // row: f32[Np]; group: f16[Np/64][Kp/g][64];
                             // nf4: f32[Np/64][ceil(Kp/256)][2], first value and step of the sizes;
                             // b1: f16[Np/64][Kp/128][64][8];
                             // q4_k, q5_k, q6_k: tensor/super_blocks.h, as the zeros
  std::uint64_t zeros = 0;   // u8. uint: zero points, same shape as the scales;
                             // nf4: sizes of blocks [Np/64][Kp/64][64];
                             // b1: bits of salient columns [Kp/8]
  std::uint64_t sums = 0;    // int8 with any act but none, sums of codes: i32[Np] or
                             // i16[Np/64][Kp/h][64], see sum_group and sums_are_per_row
};

// Rows and columns are those of the weight, not padded; both > 0.
PlaneBytes plane_bytes(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                       std::int64_t columns);

// The planes that the bits of integer codes are split into, within the plane `codes`.
struct CodePlanes {
  int low_bits = 8;          // bits of a code in the first plane
  int high_bits = 0;         // in the second; 0: there is none
  std::int64_t high_at = 0;  // byte where the second plane begins
};
CodePlanes code_planes(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns);

// Byte of a plane of `bits` bits where the four columns from `column` on (a multiple of 32 / bits)
// of a row begin; the next 32 / bits columns follow 256 bytes later.
inline std::int64_t panel_byte(int bits, std::int64_t padded_columns, std::int64_t row,
                               std::int64_t column) {
  return row / kPanelRows * (kPanelRows * padded_columns * bits / 8) +
         column * bits / 8 * kPanelRows + row % kPanelRows * 4;
}

// Place of the number that `group` columns of a row share, in planes [Np/64][Kp/group][64].
inline std::int64_t group_index(std::int64_t columns, std::int64_t group, std::int64_t row,
                                std::int64_t column) {
  const std::int64_t groups =
      (columns + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns / group;
  return (row / kPanelRows * groups + column / group) * kPanelRows + row % kPanelRows;
}

// Whether such inputs can meet such weights: a group of the weights must not span several scales of
// the inputs.
bool fits_act(const QuantScheme& scheme, ActKind act);

// Columns that one code sum covers: Kp for row-scaled weights with one scale a row (act row, tensor
// or online), else the finer of the weight's and the activation's group.
std::int64_t sum_group(const QuantScheme& scheme, ActKind act, std::int64_t columns);

// True where an int8 weight stores one i32 sum a row (row scales and act row, tensor or online),
// false where it stores i16 sums of h = sum_group columns.
bool sums_are_per_row(const QuantScheme& scheme, ActKind act);

// One stored weight as kernels see it, wherever its bytes lie. A view: the owner outlives it.
struct WeightView {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  std::int64_t rows = 0;     // N, output channels
  std::int64_t columns = 0;  // K, input channels
  const std::byte* codes = nullptr;
  const void* scales = nullptr;  // const float* (row) or const std::uint16_t* f16 (group)
  float scale_mul = 1.0f;        // a group scale is f16 * scale_mul
  const std::uint8_t* zeros = nullptr;
  const void* sums = nullptr;  // const std::int32_t* or const std::int16_t*
  // Bytes from `codes` to the codes' second plane where this is a slice of a weight that has one;
  // 0: it follows the first.
  std::int64_t high_at = 0;

  std::int64_t padded_rows() const { return (rows + 63) / 64 * 64; }
  std::int64_t padded_columns() const { return (columns + 127) / 128 * 128; }
};

// Where the planes of its codes lie, from its `codes` on.
CodePlanes code_planes(const WeightView& weight);

// Bytes of all its planes.
std::uint64_t stored_bytes(const WeightView& weight);

}  // namespace leq
