// Layout of the numbers of one stored weight [rows][columns]: the planes of docs/leq-format.md and
// their sizes. Floats are row-major. Integer codes are in panels of 64 output rows and in quads of
// four columns, so that one 64-byte load has the codes of 16 rows for a dot product:
//   byte  = panel * 64*Kp*bits/8 + (k/4) / (8/bits) * 256 + (row % 64) * 4 + k % 4
//   shift = bits * ((k/4) % (8/bits))
// Codes of 3, 5 and 6 bits are split: a plane of the low 2 or 4 bits, then one of the other bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/slice.h"
#include "tensor/quant_scheme.h"

namespace leq {

inline constexpr std::int64_t kPanelRows = 64;
inline constexpr std::int64_t kPaddedColumns = 128;

// Bytes of each plane; 0 if the scheme has no such plane.
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

// `rows` and `columns` are those of the weight without padding; both must be > 0.
PlaneBytes plane_bytes(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                       std::int64_t columns);

// The two planes of integer codes whose bits are split, both within the plane `codes`.
struct CodePlanes {
  int low_bits = 8;          // bits of a code in the first plane
  int high_bits = 0;         // bits in the second plane; 0: there is none
  std::int64_t high_at = 0;  // byte offset of the second plane
};
CodePlanes code_planes(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns);

// Offset, in a plane of `bits` bits per code, of four columns of a row from `column` on, which is a
// multiple of 32 / bits. The next 32 / bits columns follow 256 bytes later.
inline std::int64_t panel_byte(int bits, std::int64_t padded_columns, std::int64_t row,
                               std::int64_t column) {
  return row / kPanelRows * (kPanelRows * padded_columns * bits / 8) +
         column * bits / 8 * kPanelRows + row % kPanelRows * 4;
}

// Index of the number that `group` columns of a row share, in planes [Np/64][Kp/group][64].
inline std::int64_t group_index(std::int64_t columns, std::int64_t group, std::int64_t row,
                                std::int64_t column) {
  const std::int64_t groups =
      (columns + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns / group;
  return (row / kPanelRows * groups + column / group) * kPanelRows + row % kPanelRows;
}

// Whether inputs of this kind can be used with such weights: a group of the weights must not extend
// over several scales of the inputs.
bool fits_act(const QuantScheme& scheme, ActKind act);

// Columns per sum of codes: Kp for row-scaled weights whose inputs have one scale per row (act row,
// tensor or online), otherwise the finer group of weight and activations.
std::int64_t sum_group(const QuantScheme& scheme, ActKind act, std::int64_t columns);

// Whether an int8 weight stores one i32 sum per row (row scales and act row, tensor or online) or
// i16 sums of h = sum_group columns.
bool sums_are_per_row(const QuantScheme& scheme, ActKind act);

// One stored weight as kernels use it. A view: the owner of the memory must outlive it.
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
  // Bytes from `codes` to the second plane of codes, if this is a slice of a weight that has one;
  // 0: the second plane follows the first.
  std::int64_t high_at = 0;

  std::int64_t padded_rows() const { return (rows + 63) / 64 * 64; }
  std::int64_t padded_columns() const { return (columns + 127) / 128 * 128; }
};

// The planes of the view's codes, with offsets from `codes`.
CodePlanes code_planes(const WeightView& weight);

// Bytes of all planes of the weight.
std::uint64_t stored_bytes(const WeightView& weight);

// Some rows of a stored weight as a view without copying. This works because whole panels are
// contiguous in every plane.

// `rows` must begin at a panel (a multiple of 64) and end at one or at the end; may be empty.
WeightView slice_rows(const WeightView& weight, const Slice& rows);

}  // namespace leq
