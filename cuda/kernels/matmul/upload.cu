// Converts weights from the file's panels to the device's order (layout.h). Bits are moved without
// rounding. Each thread writes one word (three words of 3 bits) or one element.
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPanelRows = 64;

// Four codes of a row, from column `column` (a multiple of 4) of a plane of `bits` bits in the
// file, each in the low bits of a byte.
__device__ unsigned panel_quad(const UploadCodes& a, int bits, std::int64_t row,
                               std::int64_t column) {
  const std::int64_t quads = 8 / bits, quad = column / 4;
  const std::int64_t byte = row / kPanelRows * (kPanelRows * a.padded_columns * bits / 8) +
                            quad / quads * (4 * kPanelRows) + row % kPanelRows * 4;
  const unsigned in = *reinterpret_cast<const unsigned*>(a.from + byte);
  return in >> quad % quads * bits & 0x01010101u * ((1u << bits) - 1);
}

__global__ void __launch_bounds__(kThreads) upload_codes(const LEQ_GRID_CONSTANT UploadCodes a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t row_words = a.padded_columns * a.bits / 32;
  const std::int64_t word = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (word >= a.padded_rows * row_words) return;
  const std::int64_t row = word / row_words, at = word % row_words;
  const std::int64_t chunk = at / 4, j = at % 4;  // the 16-byte chunk, and the word in it
  unsigned out = 0;
  for (int i = 0; i < 8 / a.bits; ++i) {
    const std::int64_t column = chunk * (128 / a.bits) + 16 * i + 4 * j;
    out |= panel_quad(a, a.bits, row, column) << a.bits * i;
  }
  *reinterpret_cast<unsigned*>(a.to + word * 4) = out;
}

// Each thread has one word of each of three chunks. Third bits are merged by xor into the words
// written for the low two bits, because the packing of 3 bits is linear in xor.
__global__ void __launch_bounds__(kThreads)
    upload_three_bits(const LEQ_GRID_CONSTANT UploadCodes a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t row_words = a.padded_columns / 32;
  const std::int64_t word = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (word >= a.padded_rows * row_words) return;
  const std::int64_t row = word / row_words, first = word % row_words / 4 * 128 + word % 4 * 4;
  unsigned quads[8];
  for (int i = 0; i < 8; ++i) {
    const std::int64_t column = first + 16 * i;
    // The third bit is the top bit of u - 4, inverted.
    quads[i] = a.thirds ? panel_quad(a, 1, row, column) << 7 ^ 0x80808080u
                        : panel_quad(a, 2, row, column) << 5;
  }
  const ThreeBitWords words = three_bit_words(quads);
  auto* const to =
      reinterpret_cast<unsigned*>(a.to + row * (a.padded_columns * 3 / 8) + three_bit_byte(first));
  for (int chunk = 0; chunk < 3; ++chunk) {
    to[chunk * 4] = words.of[chunk] ^ (a.thirds ? to[chunk * 4] : 0);
  }
}

template <class Element, class Stored = Element>
__global__ void __launch_bounds__(kThreads) upload_groups(const LEQ_GRID_CONSTANT UploadGroups a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.padded_rows * a.groups) return;
  const std::int64_t row = i / a.groups, group = i % a.groups;
  const std::int64_t at = (row / kPanelRows * a.groups + group) * kPanelRows + row % kPanelRows;
  constexpr int kShift = sizeof(Stored) < sizeof(Element) ? 7 : 0;
  static_cast<Element*>(a.to)[i] =
      static_cast<Element>(static_cast<const Stored*>(a.from)[at] << kShift);
}

template <class Element>
__global__ void __launch_bounds__(kThreads) upload_floats(const LEQ_GRID_CONSTANT UploadFloats a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t stride = float_stride(a.columns);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.rows * stride) return;
  const std::int64_t row = i / stride, column = i % stride;
  static_cast<Element*>(a.to)[i] =
      column < a.columns ? static_cast<const Element*>(a.from)[row * a.columns + column]
                         : Element{0};
}

dim3 blocks_for(std::int64_t threads) { return rt::grid(div_up(threads, kThreads)); }

}  // namespace

void launch_upload_codes(const UploadCodes& a, rt::Stream& stream) {
  const std::int64_t words = a.padded_rows * a.padded_columns * (a.bits == 3 ? 1 : a.bits) / 32;
  const auto kernel = a.bits == 3 ? upload_three_bits : upload_codes;
  rt::run(stream, {"upload_codes", blocks_for(words), kThreads}, kernel, a);
}

void launch_upload_groups(const UploadGroups& a, rt::Stream& stream) {
  const auto kernel = a.halves               ? upload_groups<std::uint16_t, std::uint8_t>
                      : a.element_bytes == 2 ? upload_groups<std::uint16_t>
                                             : upload_groups<std::uint8_t>;
  rt::run(stream, {"upload_groups", blocks_for(a.padded_rows * a.groups), kThreads}, kernel, a);
}

void launch_upload_floats(const UploadFloats& a, rt::Stream& stream) {
  const auto kernel =
      a.element_bytes == 4 ? upload_floats<std::uint32_t> : upload_floats<std::uint16_t>;
  const dim3 blocks = blocks_for(a.rows * float_stride(a.columns));
  rt::run(stream, {"upload_floats", blocks, kThreads}, kernel, a);
}

}  // namespace leq::LEQ_GPU
