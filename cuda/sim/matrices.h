// The semantics of mma and ldmatrix for the emulator: which lane of a warp holds which element of a
// matrix. Called through ptx.h and the other intrinsics.
#pragma once

#include <array>
#include <type_traits>

#include "cuda/sim/vocabulary.h"

namespace simt {

// One lane's registers of A and B, as numbers.
template <class NumbersA, class NumbersB>
struct MmaFragment {
  NumbersA a[4];
  NumbersB b[2];
};

// D[16][8] += A[16][8 n] B[8 n][8], n numbers in a register: n = 4 for bytes, 2 for 16-bit floats.
// `numbers_of_a(register)` and `numbers_of_b` give them as std::array<Number, n>. g = lane / 4,
// t = lane % 4, j < n:
//   a[r] number j: row g + 8 (r % 2), column n t + j + 4 n (r / 2)
//   b[r] number j: k = n t + j + 4 n r, column g
//   d[i]:          row g + 8 (i / 2), column 2 t + i % 2
// Sums of floats by fma, in ascending k.
template <class Sum, class NumbersOfA, class NumbersOfB>
void mma_m16n8(Sum (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
               NumbersOfA numbers_of_a, NumbersOfB numbers_of_b) {
  using Fragment = MmaFragment<decltype(numbers_of_a(0)), decltype(numbers_of_b(0))>;
  Fragment mine;
  for (unsigned r = 0; r < 4; ++r) mine.a[r] = numbers_of_a(a[r]);
  for (unsigned r = 0; r < 2; ++r) mine.b[r] = numbers_of_b(b[r]);
  const Slot* all = meet(Meeting::mma, kAllLanes, slot_of(mine));
  const unsigned g = lane() / 4, t = lane() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + 8 * (i / 2), column = 2 * t + i % 2;
    Sum sum = d[i];
    for (unsigned part = 0; part < 8; ++part) {  // k = n part + j
      const auto& from_a = reinterpret_cast<const Fragment&>(all[row % 8 * 4 + part % 4]);
      const auto& from_b = reinterpret_cast<const Fragment&>(all[column * 4 + part % 4]);
      const auto& x = from_a.a[row / 8 + 2 * (part / 4)];
      const auto& y = from_b.b[part / 4];
      for (unsigned j = 0; j < x.size(); ++j) {
        if constexpr (std::is_floating_point_v<Sum>) {
          sum = std::fma(x[j], y[j], sum);
        } else {
          sum += x[j] * y[j];
        }
      }
    }
    d[i] = sum;
  }
}

// The four bytes of a register.
template <class Byte>
std::array<Byte, 4> bytes_of(std::uint32_t word) {
  return std::bit_cast<std::array<Byte, 4>>(word);
}

// Loads four 8 x 8 matrices of 16-bit numbers or their transposes. Lane l passes the address of row
// l % 8 of matrix l / 8 and gets two numbers of each matrix: row l / 4, columns 2 (l % 4) and next.
template <bool transposed>
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) stop("ldmatrix: unaligned address");
  const Slot* rows = meet(Meeting::ldmatrix, kAllLanes, slot_of(row));
  const unsigned own = lane() / 4, pair = lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    std::uint16_t numbers[2];
    for (unsigned j = 0; j < 2; ++j) {
      const unsigned from = transposed ? pair + j : own, column = transposed ? own : pair + j;
      const auto* at = value_of<const unsigned char*>(rows[i * 8 + from]);
      std::memcpy(&numbers[j], at + column * 2, 2);
    }
    std::memcpy(&r[i], numbers, 4);
  }
}

}  // namespace simt
