// Stored weights from the file's panels into device planes (layout.h): bytes move, nothing is
// rounded. Each thread writes one word of a plane, or one element.
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPanelRows = 64;

// Four columns of a row from `column` on (a multiple of 4) in the file: the byte where their word
// begins and the shift within each byte.
struct PanelPlace {
  std::int64_t byte;
  int shift;
};
__device__ PanelPlace panel_place(const UploadCodes& a, std::int64_t row, std::int64_t column) {
  const std::int64_t quads = 8 / a.bits, quad = column / 4;
  return {row / kPanelRows * (kPanelRows * a.padded_columns * a.bits / 8) +
              quad / quads * (4 * kPanelRows) + row % kPanelRows * 4,
          static_cast<int>(quad % quads) * a.bits};
}

__global__ void __launch_bounds__(kThreads) upload_codes(const LEQ_GRID_CONSTANT UploadCodes a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t row_words = a.padded_columns * a.bits / 32;
  const std::int64_t word = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (word >= a.padded_rows * row_words) return;
  const std::int64_t row = word / row_words, at = word % row_words;
  const std::int64_t chunk = at / 4, j = at % 4;  // of 16 bytes, and the word in it
  const unsigned mask = 0x01010101u * ((1u << a.bits) - 1);
  unsigned out = 0;
  for (int i = 0; i < 8 / a.bits; ++i) {
    const std::int64_t column = chunk * (128 / a.bits) + 16 * i + 4 * j;
    const PanelPlace place = panel_place(a, row, column);
    const unsigned in = *reinterpret_cast<const unsigned*>(a.from + place.byte);
    out |= (in >> place.shift & mask) << a.bits * i;
  }
  *reinterpret_cast<unsigned*>(a.to + word * 4) = out;
}

template <class Element>
__global__ void __launch_bounds__(kThreads) upload_groups(const LEQ_GRID_CONSTANT UploadGroups a) {
  LEQ_BOUNDS(kThreads);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.padded_rows * a.groups) return;
  const std::int64_t row = i / a.groups, group = i % a.groups;
  const std::int64_t at = (row / kPanelRows * a.groups + group) * kPanelRows + row % kPanelRows;
  static_cast<Element*>(a.to)[i] = static_cast<const Element*>(a.from)[at];
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

dim3 blocks_for(std::int64_t threads) {
  return dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
}

}  // namespace

void launch_upload_codes(const UploadCodes& a, rt::Stream& stream) {
  const std::int64_t words = a.padded_rows * a.padded_columns * a.bits / 32;
  rt::run(stream, {"upload_codes", blocks_for(words), dim3(kThreads)}, upload_codes, a);
}

void launch_upload_groups(const UploadGroups& a, rt::Stream& stream) {
  const auto kernel =
      a.element_bytes == 2 ? upload_groups<std::uint16_t> : upload_groups<std::uint8_t>;
  rt::run(stream, {"upload_groups", blocks_for(a.padded_rows * a.groups), dim3(kThreads)}, kernel,
          a);
}

void launch_upload_floats(const UploadFloats& a, rt::Stream& stream) {
  const auto kernel =
      a.element_bytes == 4 ? upload_floats<std::uint32_t> : upload_floats<std::uint16_t>;
  rt::run(stream, {"upload_floats", blocks_for(a.rows * float_stride(a.columns)), dim3(kThreads)},
          kernel, a);
}

}  // namespace leq::LEQ_GPU
