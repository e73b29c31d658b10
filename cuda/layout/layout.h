// Where numbers lie in device memory: formulas that kernels, the host and plans share. Weights, N
// rows (outputs), K columns (inputs), Np = ceil64(N), Kp = ceil128(K), pads have value 0:
//   codes of b bits, 8, 4 or 2: planes [Np][Kp*b/8]. 16 bytes hold 128/b columns of a row: column
//     k = 16 i + 4 j + y of them lies in byte 4 j + y, bits b*i and up. So (word j >> b*i) & mask
//     is four neighbouring codes: an operand of dp4a, and a register of mma.m16n8k32. 3 bits: the
//     planes of the low two bits, and after all of them those of the third (b = 1). 8 bits are
//     signed; fewer are unsigned, the number is code - zero (2^(b-1) for int schemes).
//   scales: row f32 [Np]; group f16 [Np][Kp/g], times scale_mul.   zeros (uint): u8, same shape.
//   floats: [N][ceil32(K)].
// Activations: f32 [T][ceil32(W)], codes s8 [T][ceil128(W)], scales f32 [T][1 or Kp/128], sums of
// codes i32 [T][Kp/h]; pads hold 0 from the start and are never written.
// A page of keys or values: numbers [H_kv][64][kv_row_bytes], then for int8 f16 scales [H_kv][64]
// and f16 minima [H_kv][64].
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq::gpu {

// Blocks of device memory begin and end at multiples.
inline constexpr std::size_t kBlockUnit = 256;

constexpr std::int64_t round_up_to(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}
// Columns from one row of f32 activations, or of a float weight, to the next.
constexpr std::int64_t float_stride(std::int64_t columns) { return round_up_to(columns, 32); }
constexpr std::int64_t padded_columns(std::int64_t columns) { return round_up_to(columns, 128); }
constexpr std::int64_t padded_rows(std::int64_t rows) { return round_up_to(rows, 64); }

// Byte and shift of a column's code in a row of planes of b bits.
constexpr std::int64_t plane_byte(int bits, std::int64_t column) {
  const std::int64_t chunk = 128 / bits, k = column % chunk;
  return column / chunk * 16 + k % 16;
}
constexpr int plane_shift(int bits, std::int64_t column) {
  return static_cast<int>(column % (128 / bits) / 16) * bits;
}

inline constexpr int kKvPageTokens = 64;
// Bytes from one position of a head to the next, a multiple of 16.
constexpr std::int64_t kv_row_bytes(int head_dim, int number_bytes) {
  return round_up_to(std::int64_t{head_dim} * number_bytes, 16);
}

}  // namespace leq::gpu
