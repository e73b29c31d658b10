// The layout of device memory: formulas shared by kernels, the host and plans. Weights have N
// rows (outputs) and K columns (inputs); Np = ceil64(N), Kp = ceil128(K), padding has value 0:
//   codes of b bits, 8, 4 or 2: [Np][Kp*b/8]. 16 bytes hold 128/b columns of a row: column
//     k = 16 i + 4 j + y of them is in byte 4 j + y, bits b*i and up. So (word j >> b*i) & mask
//     is four neighbouring codes: an operand of dp4a, and a register of mma.m16n8k32. 8 bits are
//     signed; fewer are unsigned, the number is code - zero (2^(b-1) for int schemes).
//   codes of 3 bits: [Np][Kp*3/8]. Three chunks of 16 bytes hold 128 columns of a row, as signed
//     numbers code - 4: words j of the chunks have columns 16 i + 4 j + y, i = 0 ... 7, which
//     three_bit_quad unpacks to the top of byte y of one word per i.
//   scales: row f32 [Np]; group f16 [Np][Kp/g], times scale_mul.   zeros (uint): u8, same shape.
//   floats: [N][ceil32(K)].
// Activations: f32 [T][ceil32(W)], codes s8 [T][ceil128(W)], scales f32 [T][1 or Kp/128], sums of
// codes i32 [T][Kp/h]; padding is 0 from the allocation on and never written.
// A page of keys or values: numbers [H_kv][64][kv_row_bytes]; for int8 f16 scales [H_kv][64] and
// f16 minima [H_kv][64] follow.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq::gpu {

// Blocks of device memory are aligned to this, and their size is a multiple of it.
inline constexpr std::size_t kBlockUnit = 256;

constexpr std::int64_t div_up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit;
}
// Returns log2 of a group of 16, 32, 64 or 128 columns. Shifts by it replace divisions by a
// run-time value, which take thirty instructions in a kernel.
constexpr int group_shift(int group) { return 4 + (group >= 32) + (group >= 64) + (group >= 128); }
constexpr std::int64_t round_up_to(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}
// The row stride, in columns, of f32 activations and of float weights.
constexpr std::int64_t float_stride(std::int64_t columns) { return round_up_to(columns, 32); }
constexpr std::int64_t padded_columns(std::int64_t columns) { return round_up_to(columns, 128); }
constexpr std::int64_t padded_rows(std::int64_t rows) { return round_up_to(rows, 64); }

// Byte offset and shift of a column's code in a row of codes of 8, 4 or 2 bits.
constexpr std::int64_t code_byte(int bits, std::int64_t column) {
  const std::int64_t chunk = 128 / bits, k = column % chunk;
  return column / chunk * 16 + k % 16;
}
constexpr int code_shift(int bits, std::int64_t column) {
  return static_cast<int>(column % (128 / bits) / 16) * bits;
}

// 3 bits: quad i, 0 ... 7, has four numbers -4 ... 3, each in the top bits of its byte and thus
// scaled by 32. word(p) is word j of chunk p. Contents of the bits of its bytes:
//             7 6 5     4 3 2     1 0
//   chunk 0   quad 0    quad 1    upper two of quad 6
//   chunk 1   quad 2    quad 3    upper two of quad 7
//   chunk 2   quad 4    quad 5    lowest of quad 7, lowest of quad 6
// Quads 6 and 7 are the XOR of two shifted words, because one instruction computes that and the
// mask. Other bits of the words enter the XOR too, so the bits of the last column are stored such
// that they cancel out (three_bit_words). docs/cuda-kernels.md counts the instructions.
inline constexpr std::uint32_t kThreeBitTops = 0xe0e0e0e0u;
template <class Word>
constexpr std::uint32_t three_bit_quad(int i, Word word) {
  if (i < 6) return word(i / 2) << 3 * (i % 2) & kThreeBitTops;
  return (word(i - 6) << 6 ^ word(2) << (11 - i)) & kThreeBitTops;
}

// Words j of the three chunks. The packing is linear: the XOR of words has the XOR of quads.
struct ThreeBitWords {
  std::uint32_t of[3];
};
constexpr ThreeBitWords three_bit_words(const std::uint32_t (&quads)[8]) {
  ThreeBitWords w = {
      {quads[0] | quads[1] >> 3, quads[2] | quads[3] >> 3, quads[4] | quads[5] >> 3}};
  const auto missing = [&](int i) {
    return quads[i] ^ three_bit_quad(i, [&](int chunk) { return w.of[chunk]; });
  };
  // Sets bits 1 and 0 (the last column above), chunk 2 first, because the other two depend on it.
  w.of[2] |= missing(6) >> 5 & 0x01010101u;
  w.of[2] |= missing(7) >> 4 & 0x02020202u;
  w.of[0] |= missing(6) >> 6 & 0x03030303u;
  w.of[1] |= missing(7) >> 6 & 0x03030303u;
  return w;
}
// Returns the byte offset in a row of word j of chunk 0, with the j that belongs to `column`. Words
// j of chunks 1 and 2 follow at distances of 16 bytes.
constexpr std::int64_t three_bit_byte(std::int64_t column) {
  return column / 128 * 48 + column % 16 / 4 * 4;
}

inline constexpr int kDeltaKeyDims = 128;  // most dimensions of a key head of Gated DeltaNet
inline constexpr int kKvPageTokens = 64;
// Returns the stride in bytes between positions of a head, a multiple of 16.
constexpr std::int64_t kv_row_bytes(int head_dim, int number_bytes) {
  return round_up_to(std::int64_t{head_dim} * number_bytes, 16);
}

}  // namespace leq::gpu
