// Weights as methods choose them and as a file stores them: codes are chosen, rounded and packed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/weight_layout.h"

namespace leq {

// Codes, scales and zero points of one weight [N][K] as chosen by a method, row-major. pack_codes
// stores them in panels.
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

// Quantizes, packs and unpacks the rows of a weight. This is the specification in code: plain loops
// with the arithmetic of docs/leq-format.md. All kernels and devices must use the same bytes.

// The planes of one packed weight in memory.
struct PackedWeight {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float scale_mul = 1.0f;
  std::vector<std::byte> codes, scales, zeros, sums;

  WeightView view() const;
};

// Rounds `values` [rows][columns] f32 to the nearest codes and packs them. int: scale by the
// largest |x| (method absmax); uint: by the range (method zeropoint); others: by their format.
// Float schemes round to nearest even. Throws Error naming `name`, row and column of a value that
// is not finite or that f16 cannot represent; and for formats whose codes a method must choose.
PackedWeight pack_weight(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                         const QuantScheme& scheme, ActKind act, std::string_view name);

// Packs codes, scales and zero points that a method has chosen. Group scales must be rounded to
// values that the file can store (round_group_scales). Throws Error if a count does not fit the
// shape or a code is outside the scheme's range.
PackedWeight pack_codes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act);

// Number of scales and zero points that a scheme has for a weight.
ChosenCounts chosen_counts(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns);

// Rounds the group scales of a tensor in place to f16 times a power of two. Returns this power,
// scale_mul = 2^(e - 15), where e is the frexp exponent of the largest |s|. A group below
// kSmallestAbsmax, or whose scale would round to 0, gets the stored scale 1 (here scale_mul), and
// the caller gives it codes of value 0. `group_absmax`: each group's max |x|, for uint its range.
float round_group_scales(std::span<float> scales, std::span<const float> group_absmax);
// Like round_group_scales above, for some rows of a tensor. The caller passes the largest |s| of
// the whole tensor among groups not below kSmallestAbsmax, or 0 if there are none.
float round_group_scales(std::span<float> scales, std::span<const float> group_absmax,
                         float largest);
float largest_group_scale(std::span<const float> scales, std::span<const float> group_absmax);

// Row `row` of a stored weight as f32 [columns], or its columns [first, first + out.size()), where
// `first` is a multiple of 128.
void unpack_row(const WeightView& weight, std::int64_t row, std::span<float> out);
void unpack_columns(const WeightView& weight, std::int64_t row, std::int64_t first,
                    std::span<float> out) noexcept;

// One code, its scale as f32 and its zero point, for tests and tools. int: the signed number;
// otherwise the stored code, see ChosenCodes. scale_at throws Error for formats with more than one
// scale for a code (b1).
int code_at(const WeightView& weight, std::int64_t row, std::int64_t column);
float scale_at(const WeightView& weight, std::int64_t row, std::int64_t column);
int zero_at(const WeightView& weight, std::int64_t row, std::int64_t column);  // 0 except for uint

// Stores codes and scales of a weight in the file's layout: panels of 64 rows, quads of columns.

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

// Writes the codes of a row of an integer weight, one for each column, to out [columns].
void read_row_codes(const WeightView& weight, std::int64_t row, std::span<std::int16_t> out);

}  // namespace leq
